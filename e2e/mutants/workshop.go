// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// workshop runs tests of the project. What it writes is in a directory of its own.
type workshop struct{ root, scratch string }

func newWorkshop() (workshop, error) {
	root, err := os.Getwd()
	if err == nil {
		_, err = os.Stat(filepath.Join(root, "go.mod"))
	}
	if err != nil {
		return workshop{}, fmt.Errorf("looking for the project's root here: %w", err)
	}
	scratch, err := os.MkdirTemp("", "mutants-")
	return workshop{root, scratch}, err
}

func (w workshop) close() error { return os.RemoveAll(w.scratch) }

// runUnchanged runs tests of one group without a mutation. It returns why one of them
// does not pass, "" if all do.
func (w workshop) runUnchanged(tests []test) (fault string, err error) {
	found, err := goTest(filepath.Join(w.root, tests[0].pkg), nil, arguments(tests...)...)
	if err != nil {
		return "", err
	}
	for _, t := range tests {
		if action := found.actions[t.key()]; action != "pass" {
			return fmt.Sprintf("%s without a mutation: %q, expected \"pass\"\n%s", t, action, found.output), nil
		}
	}
	return "", nil
}

// runMutant runs the test of a mutant. It returns why that does not prove that the test
// noticed, "" if it does.
func (w workshop) runMutant(m mutant) (fault string, err error) {
	content, err := m.apply(w.root)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(w.scratch, "")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	prepare := w.inCopy
	if filepath.Ext(m.file) == ".go" {
		prepare = w.inOverlay
	}
	env, args, err := prepare(dir, m, content)
	if err != nil {
		return "", fmt.Errorf("preparing the mutant: %w", err)
	}
	found, err := goTest(filepath.Join(w.root, m.by.pkg), env, append(args, arguments(m.by)...)...)
	if err != nil {
		return "", err
	}
	return found.fault(m.by), nil
}

// inOverlay has compilers read the mutant in the place of a file of Go. The variable
// reaches the go commands that a test executes.
func (w workshop) inOverlay(dir string, m mutant, content string) (env, args []string, err error) {
	mutated, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(w.root, m.file): mutated}})
	if err != nil {
		return nil, nil, err
	}
	err = errors.Join(os.WriteFile(mutated, []byte(content), 0o600), os.WriteFile(overlay, replace, 0o600))
	return []string{"GOFLAGS=" + os.Getenv("GOFLAGS") + " -overlay=" + overlay}, nil, err
}

// inCopy has the test read a copy of the project, for a file that no compiler reads.
func (w workshop) inCopy(dir string, m mutant, content string) (env, args []string, err error) {
	copied := filepath.Join(dir, "project")
	if err := copyProject(w.root, copied); err != nil {
		return nil, nil, err
	}
	err = os.WriteFile(filepath.Join(copied, m.file), []byte(content), 0o600)
	return nil, []string{"-exec=env --chdir=" + filepath.Join(copied, m.by.pkg)}, err
}
