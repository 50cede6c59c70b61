// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// gremlinsReport is the part of gremlins' report that is compared.
type gremlinsReport struct {
	Files []struct {
		Name      string `json:"file_name"`
		Mutations []struct {
			Type, Status string
			Line, Column int
		}
	}
}

// kinds has the kinds of mutants by gremlins' names. A minus is both arithmetic and negative
// for gremlins.
var kinds = map[string]string{
	"CONDITIONALS_NEGATION": "negation", "CONDITIONALS_BOUNDARY": "boundary", "INCREMENT_DECREMENT": "increment",
	"ARITHMETIC_BASE": "arithmetic", "INVERT_NEGATIVES": "arithmetic", "negative": "arithmetic",
}

// TestOracleGremlins expects gremlins to make the same mutants of operators, and to notice
// the same ones. gremlins also makes some that don't compile, and counts those as noticed.
func TestOracleGremlins(t *testing.T) {
	lab.RequireTime(t)
	project, err := lab.Project(t.Context())
	lab.Check(t, err)
	// gremlins copies the whole module for each worker, so it gets a small one.
	module, program := t.TempDir(), filepath.Join(t.TempDir(), "gremlins")
	lab.Check(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module github.com/capture-cni/capture-cni\n\ngo 1.26.0\n"), 0o600))
	command(t, filepath.Join(project, "e2e", "tools"), "go", "build", "-o", program, "github.com/go-gremlins/gremlins/cmd/gremlins")
	for _, c := range []struct {
		path, files string
		uncompiled  int // operators that have no other one: + of texts
	}{
		{"e2e/mutate/testdata/sample", "", 1},
		{"plugin/httplimit", "", 0},
		{"config", "directories|grammar|input|keys|netconf|settings|values|version", 1}, // version.go: the module of gremlins has another one
	} {
		name := filepath.Base(c.path)
		lab.Check(t, os.CopyFS(filepath.Join(module, name), os.DirFS(filepath.Join(project, c.path))))
		report := filepath.Join(module, name+".json")
		args := []string{"unleash", "--timeout-coefficient=20", "-o", report, "./" + name}
		if c.files != "" {
			args = append(args, "-E", c.files)
		}
		command(t, module, program, args...)
		theirs, ours := readReport(t, report), operatorMutants(t, filepath.Join(project, c.path))
		extra := 0
		for at, noticed := range theirs {
			if own, made := ours[at]; !made {
				extra++
			} else if own != noticed {
				t.Errorf("%s: gremlins notices %s: %v, this program: %v", c.path, at, noticed, own)
			}
			delete(ours, at)
		}
		for at := range ours {
			if c.files == "" {
				t.Errorf("%s: gremlins does not make %s", c.path, at)
			}
		}
		if extra != c.uncompiled || len(theirs) == 0 {
			t.Errorf("%s: gremlins makes %d, and %d that this program does not make, want %d", c.path, len(theirs), extra, c.uncompiled)
		}
	}
}

func command(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}

// readReport returns by position and kind whether gremlins' tests noticed a mutant.
func readReport(t *testing.T, path string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(path)
	lab.Check(t, err)
	var report gremlinsReport
	lab.Check(t, json.Unmarshal(text, &report))
	noticed := map[string]bool{}
	for _, file := range report.Files {
		for _, m := range file.Mutations {
			at := fmt.Sprintf("%s:%d:%d %s", filepath.Base(file.Name), m.Line, m.Column, kinds[m.Type])
			noticed[at] = m.Status == "KILLED" || m.Status == "TIMED OUT"
		}
	}
	return noticed
}

// operatorMutants returns by position and kind whether this program's tests notice a mutant.
func operatorMutants(t *testing.T, dir string) map[string]bool {
	t.Helper()
	sources, err := load(t.Context(), []string{dir})
	lab.Check(t, err)
	trial, err := prepare(t.Context(), sources[0])
	lab.Check(t, err)
	o, err := trial.run(t.Context(), nil)
	lab.Check(t, err)
	noticed := map[string]bool{}
	for i, m := range slices.Concat(o.killed, o.lived, o.unreached) {
		kind := m.kind
		if kind == "negative" {
			kind = kinds[kind]
		}
		if slices.Contains([]string{"negation", "boundary", "increment", "arithmetic"}, kind) {
			noticed[fmt.Sprintf("%s:%d:%d %s", filepath.Base(m.position.Filename), m.position.Line, m.position.Column, kind)] = i < len(o.killed)
		}
	}
	return noticed
}
