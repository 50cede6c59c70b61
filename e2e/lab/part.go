// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// EarlierVersions contains the earlier releases, the newest first.
var EarlierVersions = []string{"v0.3.0", "v0.2.0", "v0.1.0"}

// needsParts matches the names of tests that need programs of other projects or of earlier releases. The
// Makefile has the same expression, because `make test` does not build such programs, and omits these
// tests.
var needsParts = regexp.MustCompile(`^Test(Oracle|Earlier)`)

// Part returns the path of a program of another project. For an earlier release, such as v0.3.0, it
// returns a directory with the release's programs, image.tar and chart. `make parts` builds all of them.
func Part(t testing.TB, name string) string {
	t.Helper()
	if !needsParts.MatchString(t.Name()) {
		t.Fatalf("a test that needs %s has a name that matches %s, so that make test leaves it out", name, needsParts)
	}
	project, err := Project(t.Context())
	Check(t, err)
	if strings.HasPrefix(name, "v") {
		RequireHistory(t, project)
	}
	path := filepath.Join(project, "bin", "parts", name)
	if _, err := os.Stat(path); err != nil {
		Lacks(t, name+": run make parts")
	}
	return path
}
