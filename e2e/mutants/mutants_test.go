// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

const project = "../.."

// TestTable expects each mutant to apply, and its test to exist.
func TestTable(t *testing.T) {
	const fewest = 60
	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
	all := table()
	if len(all) < fewest {
		t.Errorf("%d mutants: expected at least %d", len(all), fewest)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if !kebab.MatchString(m.name) || seen[m.name] {
			t.Errorf("%q: expected a name in words joined by dashes, that no other mutant has", m.name)
		}
		seen[m.name] = true
		before, err := os.ReadFile(filepath.Join(project, m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		after, err := m.apply(project)
		if err != nil || after == string(before) {
			t.Errorf("%s: changes nothing, %v", m.name, err)
		}
		if strings.HasSuffix(m.file, "_test.go") || strings.HasPrefix(m.file, "e2e/") {
			t.Errorf("%s: %s is not part of the product", m.name, m.file)
		}
		if !exists(t, m.by) {
			t.Errorf("%s: ./%s has no %s", m.name, m.by.pkg, m.by.name)
		}
	}
}

// TestInterrupted interrupts a run: the tests that run at that moment end by themselves, so
// that they clean up what they started, no other ones start, and nothing is left.
func TestInterrupted(t *testing.T) {
	program, scratch := filepath.Join(t.TempDir(), "mutants"), t.TempDir()
	lab.RequireProgram(t, "go")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first := slices.IndexFunc(table(), func(m mutant) bool { return m.by.cost == unit })
	command := exec.CommandContext(t.Context(), program, "-only", "^"+table()[first].name+"$")
	command.Dir, command.Env = project, append(os.Environ(), "TMPDIR="+scratch)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for begun := false; !begun; time.Sleep(10 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(scratch, "mutants-*"))
		begun = len(found) > 0 || err != nil || t.Context().Err() != nil
	}
	if err := syscall.Kill(-command.Process.Pid, syscall.SIGINT); err != nil { // as a terminal does
		t.Fatal(err)
	}
	err := command.Wait()
	left, _ := os.ReadDir(scratch)
	if err == nil || len(left) > 0 || !regexp.MustCompile(`(?s)interrupted; .*: passes\n.*mutants: interrupted\n$`).Match(out.Bytes()) || strings.Contains(out.String(), "killed") {
		t.Errorf("%v; left: %v\n%s", err, left, out.String())
	}
}

// exists looks for the function of a test.
func exists(t *testing.T, of test) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(project, of.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(of.name, "/")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte("\nfunc "+name+"(t *testing.T)")) {
			return true
		}
	}
	return false
}

// TestApply changes the one place that a mutant names, and refuses one that names none or
// several.
func TestApply(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/x.go", []byte("a b a"), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{"b": "a c a", "a": "", "d": ""} {
		got, err := mutant{file: "x.go", from: from, to: "c"}.apply(dir)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", from, got, err)
		}
	}
}

// TestFault expects a mutant to be killed only by its own test, which fails by itself.
func TestFault(t *testing.T) {
	t.Parallel()
	const start = `{"Action":"start","Package":"` + module + `/plugin/x"}` + "\n"
	line := func(action, name string) string {
		return `{"Action":"` + action + `","Package":"` + module + `/plugin/x","Test":"` + name + `"}` + "\n"
	}
	output := func(text string) string {
		return `{"Action":"output","Package":"` + module + `/plugin/x","Output":"` + text + `\n"}` + "\n"
	}
	for name, tt := range map[string]struct{ out, want string }{
		"it fails":               {start + line("fail", "TestA"), ""},
		"another test fails":     {start + line("fail", "TestB") + line("pass", "TestA"), "SURVIVED: TestA of ./plugin/x passes"},
		"a test of that prefix":  {start + line("fail", "TestAll"), "did not run"},
		"of another package":     {strings.ReplaceAll(start+line("fail", "TestA"), "/x", "/y"), "did not run"},
		"skipped":                {start + output("this test needs root") + line("skip", "TestA"), "was skipped:\nthis test needs root"},
		"it does not compile":    {`{"Action":"build-output","Output":"x.go:1: undefined: y\n"}` + "\n" + `{"Action":"build-fail"}` + "\n", "did not run: the mutant does not compile, or the test is gone:\nx.go:1: undefined: y"},
		"go refuses":             {"go: no such tool\n", "did not run: the mutant does not compile, or the test is gone:\ngo: no such tool"},
		"it does not end":        {start + output("panic: test timed out after 4m0s") + line("fail", "TestA"), "did not end within"},
		"a panic of the product": {start + output("panic: boom") + line("fail", "TestA"), ""},
	} {
		got := parse([]byte(tt.out)).fault(by(unit, "plugin/x", "TestA"))
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestArguments select tests, or cases of them, and none that begin alike.
func TestArguments(t *testing.T) {
	t.Parallel()
	a, b := by(unit, "plugin/x", "TestA"), by(unit, "plugin/x", "TestB")
	for _, tt := range []struct {
		tests []test
		want  string
	}{
		{[]test{a}, "-run=^(TestA)$ ."},
		{[]test{b, a, b}, "-run=^(TestA|TestB)$ ."},
		{[]test{by(unit, "plugin/x", "TestA/of_two"), by(unit, "plugin/x", "TestB/one")}, "-run=^(TestA|TestB)$/^(of_two|one)$ ."},
		{[]test{admission("TestA")}, "-run=^(TestA)$ . -args -control"},
	} {
		if got := strings.Join(arguments(tt.tests...), " "); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.tests, got, tt.want)
		}
	}
}

// TestCopy leaves out the history, and links what was built.
func TestCopy(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for name, content := range map[string]string{".git/HEAD": "ref", "bin/helm": "program", "deploy/chart/values.yaml": "a: b"} {
		path := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyProject(from, to); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(to + "/.git"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the history is there: %v", err)
	}
	values, err := os.ReadFile(to + "/deploy/chart/values.yaml")
	if link, linkErr := os.Readlink(to + "/bin"); err != nil || string(values) != "a: b" || linkErr != nil || link != from+"/bin" {
		t.Errorf("the values are %q, %v; bin is %q, %v", values, err, link, linkErr)
	}
}
