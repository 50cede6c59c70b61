// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Selection names tests of a package, or tests inside of one: TestScenarios/nftables.
type Selection struct {
	Package string // from the project's directory
	Tests   []string
	Skipped string // without Tests: all are selected but what this pattern matches
}

// Run executes the selected tests, and no other.
func (s Selection) Run() Run {
	if s.Tests == nil {
		return s.run("-test.skip=" + s.Skipped)
	}
	var patterns []string
	for _, name := range s.Tests {
		patterns = append(patterns, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	}
	return s.run("-test.run=" + strings.Join(patterns, "|"))
}

func (s Selection) run(args ...string) Run {
	command := []string{filepath.Join(programDirectory, testProgram(s.Package)), "-test.v", "-test.timeout=0"}
	return Run{Name: s.Package, Directory: workingDirectory(s.Package), Command: append(command, args...)}
}

// Failure returns an error unless all selected tests passed. What a test printed is in
// the error.
func (s Selection) Failure(o Outcome) error {
	for _, name := range s.Tests {
		if !strings.Contains(o.Output, "--- PASS: "+name+" (") {
			return fmt.Errorf("%s did not pass:\n%s", name, o.Output)
		}
	}
	if o.Status != 0 {
		return fmt.Errorf("status %d:\n%s", o.Status, o.Output)
	}
	return nil
}
