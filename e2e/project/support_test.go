// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// placedTest is a test with the directory that it is in.
var placedTest = regexp.MustCompile("`([a-z0-9/-]+)\\.(Test[A-Za-z0-9]+)`")

// TestTestedBy expects each row of the tables of bad days, pains and ways around capture to
// name a test that exists where the row says, or to say that there is none.
func TestTestedBy(t *testing.T) {
	for table, in := range map[string]struct {
		document string
		atLeast  int
	}{
		"bad days": {"deploy/guides/support.md", 15},
		"pains":    {"deploy/guides/support.md", 46},
		"ways":     {"deploy/reference/guarantees.md", 14},
	} {
		_, rest, found := strings.Cut(read(t, in.document), "<!-- "+table+" -->\n")
		rows, _, closed := strings.Cut(rest, "<!-- /"+table+" -->")
		if !found || !closed {
			t.Fatalf("%s has no table %s", in.document, table)
		}
		lines := strings.Split(strings.TrimSpace(rows), "\n")[2:]
		if len(lines) < in.atLeast {
			t.Errorf("%s has %d rows, want %d", table, len(lines), in.atLeast)
		}
		for _, line := range lines {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			tested := cells[len(cells)-1]
			tests := placedTest.FindAllStringSubmatch(tested, -1)
			if len(tests) == 0 && !strings.Contains(tested, "no test") {
				t.Errorf("%s: no test in %q", cells[0], tested)
			}
			if named := strings.Count(tested, "Test"); named != len(tests) {
				t.Errorf("%s: %d tests are named and %d of them with their directory: %s", cells[0], named, len(tests), tested)
			}
			for _, test := range tests {
				if err := expectTest(test[1], test[2]); err != nil {
					t.Errorf("%s: %v", cells[0], err)
				}
			}
		}
	}
}

// expectTest returns an error unless a directory has a test of this name.
func expectTest(directory, name string) error {
	files, err := filepath.Glob(filepath.Join(root, directory, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(content), "\nfunc "+name+"(t *testing.T)") {
			return nil
		}
	}
	return fmt.Errorf("%s has no %s", directory, name)
}

// TestIstioVersion expects support.md to name the commit of Istio that the tests use.
func TestIstioVersion(t *testing.T) {
	version := regexp.MustCompile(`istio\.io/istio v[0-9.]+-[0-9]+-([0-9a-f]{12})`).FindStringSubmatch(read(t, "e2e/parts/istio/go.mod"))
	if version == nil {
		t.Fatal("e2e/parts/istio/go.mod requires no commit of istio.io/istio")
	}
	if !strings.Contains(read(t, "deploy/guides/support.md"), "(commit "+version[1]+")") {
		t.Errorf("support.md does not name the commit %s of Istio", version[1])
	}
}
