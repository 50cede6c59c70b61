// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// EarlierVersion is the release before this one.
const EarlierVersion = "v0.1.0"

// EarlierRelease returns the directory of the release before this one, with the plugin
// capture-cni, the agent capture-cni-node, image.tar and chart. root is the project's
// directory.
func EarlierRelease(t testing.TB, root string) string {
	t.Helper()
	RequireHistory(t, root)
	dir, err := filepath.Abs(filepath.Join(root, "bin", "parts", EarlierVersion))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Fatalf("%s is not built, run make parts: %v", EarlierVersion, err)
	}
	return dir
}
