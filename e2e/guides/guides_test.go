// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const project = "../.."

// TestEveryCommandIsRun expects of each command of the guides that a test runs it, or a
// reason why none does.
func TestEveryCommandIsRun(t *testing.T) {
	commands, err := Commands(project)
	if err != nil || len(commands) < 80 {
		t.Fatalf("the guides have %d commands: %v", len(commands), err)
	}
	run := 0
	for _, command := range commands {
		switch {
		case isRun(command, commands):
			run++
		case reason(command) == "":
			t.Errorf("no test runs a command: add its section to Runs, or the reason to exempt: %s", command)
		}
	}
	t.Logf("tests run %d of %d commands", run, len(commands))
	for _, e := range exempt {
		if !slices.ContainsFunc(commands, e.covers) {
			t.Errorf("%s has no command that begins with %q any more: remove the exemption", e.guide, e.begins)
		}
		expectTests(t, e.reason)
	}
	for _, r := range Runs {
		if _, err := Script(project, r.Guide, r.Section); err != nil {
			t.Error(err)
		}
		expectTests(t, r.Test)
	}
}

var placedTest = regexp.MustCompile(`\b([a-z0-9/]+)\.(Test\w+)`)

// expectTests expects the tests that a text names to exist.
func expectTests(t *testing.T, text string) {
	t.Helper()
	for _, match := range placedTest.FindAllStringSubmatch(text, -1) {
		files, err := filepath.Glob(filepath.Join(project, match[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(path string) bool {
			source, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(source), "\nfunc "+match[2]+"(t *testing.T)")
		}) {
			t.Errorf("there is no test %s", match[0])
		}
	}
}

// TestSplit splits a block as a shell would.
func TestSplit(t *testing.T) {
	block := "# a comment\nmake a   # it's one\nhelm x \\\n  --set a=b\n\nkubectl patch -p '{\"a\":\n  1}'\ncat > f <<END\nx'\nEND\nlast\n"
	want := []string{"make a   # it's one", "helm x \\\n  --set a=b", "kubectl patch -p '{\"a\":\n  1}'", "cat > f <<END\nx'\nEND", "last"}
	if got := split(block); !slices.Equal(got, want) {
		t.Errorf("commands are %q, want %q", got, want)
	}
}

// TestCalls finds the programs of commands.
func TestCalls(t *testing.T) {
	for text, want := range map[string]string{
		"A=b kubectl get 'x y' > file && helm list | grep -q .": "kubectl,get,x y helm,list grep,-q,.",
		"until kubectl get pods; do sleep 1; done":              "kubectl,get,pods sleep,1",
		"for n in /a/*; do echo $n; done # all":                 "echo,$n",
		"cat > f <<'END'\nhelm x\nEND":                          "cat",
		"helm x \\\n  --set \"a=b c\"":                          "helm,x,--set,a=b c",
		"SERVER=$(kubectl config view)":                         "",
	} {
		var got []string
		for _, call := range (Command{Text: text}).Calls() {
			got = append(got, strings.Join(call, ","))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q calls %q, want %q", text, got, want)
		}
	}
}
