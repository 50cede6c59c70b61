// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// placedTest is a test with the directory that it is in.
var placedTest = regexp.MustCompile("`([a-z0-9/_-]+)\\.(Test[A-Za-z0-9]+)`")

var anyTest = regexp.MustCompile(`\bTest[A-Z]`)

// TestTestedBy expects each row of the tables of proofs to name a test that exists where the
// row says, or to say that there is none.
func TestTestedBy(t *testing.T) {
	rows := 0
	for line := range strings.Lines(read(t, "e2e/PROOFS.md")) {
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
	if rows < 100 {
		t.Errorf("e2e/PROOFS.md has %d rows, want 100", rows)
	}
}

// TestGuaranteesAreProved expects a row of the proofs for each threat and each way around
// capture that the guarantees number, and none for others.
func TestGuaranteesAreProved(t *testing.T) {
	proofs := read(t, "e2e/PROOFS.md")
	for _, list := range []struct {
		section, name string
		atLeast       int
	}{
		{"Threat model", "threat", 9},
		{"Ways around capture", "way", 15},
	} {
		_, section, _ := strings.Cut(read(t, "deploy/reference/guarantees.md"), "\n## "+list.section+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		items := regexp.MustCompile(`(?m)^([0-9]+)\. `).FindAllStringSubmatch(section, -1)
		if len(items) < list.atLeast {
			t.Errorf("section %q has %d items, want %d", list.section, len(items), list.atLeast)
		}
		var proved []string
		for _, row := range regexp.MustCompile(`(?m)^\| `+list.name+`s? ([0-9, ]+) \|`).FindAllStringSubmatch(proofs, -1) {
			proved = append(proved, strings.Split(row[1], ", ")...)
		}
		for i, item := range items {
			if item[1] != fmt.Sprint(i+1) {
				t.Errorf("section %q: item %s is the %d. one", list.section, item[1], i+1)
			}
			if !slices.Contains(proved, item[1]) {
				t.Errorf("e2e/PROOFS.md has no row for %s %s", list.name, item[1])
			}
		}
		if len(proved) != len(items) {
			t.Errorf("e2e/PROOFS.md proves %s %q, but section %q has %d items", list.name, proved, list.section, len(items))
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
