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
var placedTest = regexp.MustCompile("`([a-z0-9/_-]+)\\.(Test[A-Za-z0-9]+)`")

var anyTest = regexp.MustCompile(`\bTest[A-Z]`)

// TestTestedBy expects each row of the tables of proofs and of ways around capture to name a
// test that exists where the row says, or to say that there is none.
func TestTestedBy(t *testing.T) {
	for document, atLeast := range map[string]int{"e2e/PROOFS.md": 75, "deploy/reference/guarantees.md": 14} {
		rows := 0
		for line := range strings.Lines(read(t, document)) {
			cells := strings.Split(strings.Trim(line, "| \n"), "|")
			tested := strings.TrimSpace(cells[len(cells)-1])
			if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || tested == "shown by" {
				continue
			}
			rows++
			tests := placedTest.FindAllStringSubmatch(tested, -1)
			if len(tests) == 0 && !strings.Contains(tested, "no test") {
				t.Errorf("%s: no test in %q", cells[0], tested)
			}
			if named := len(anyTest.FindAllString(tested, -1)); named != len(tests) {
				t.Errorf("%s: %d tests are named and %d of them with their directory: %s", cells[0], named, len(tests), tested)
			}
			for _, test := range tests {
				if err := expectTest(test[1], test[2]); err != nil {
					t.Errorf("%s: %v", cells[0], err)
				}
			}
		}
		if rows < atLeast {
			t.Errorf("%s has %d rows, want %d", document, rows, atLeast)
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
