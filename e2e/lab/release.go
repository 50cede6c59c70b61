// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// EarlierVersions are the releases before this one, the last one first.
var EarlierVersions = []string{"v0.2.0", "v0.1.0"}

// EarlierRelease returns the directory of an earlier release, with its programs, image.tar
// and chart. root is the project's directory.
func EarlierRelease(t testing.TB, root, version string) string {
	t.Helper()
	RequireHistory(t, root)
	dir, err := filepath.Abs(filepath.Join(root, "bin", "parts", version))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Fatalf("%s is not built, run make parts: %v", version, err)
	}
	return dir
}
