// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// elsewhere matches the tests that need other projects' programs. Benchmarks assert nothing.
var elsewhere = regexp.MustCompile(`^(TestOracle|TestEarlier|Benchmark)`)

// testRun is one test of a package, run alone with no mutant.
type testRun struct {
	name      string
	took, cpu time.Duration
	reached   map[int]bool
}

// cost is the time that a test takes of the run: a test's processes share the cores with others.
func (t testRun) cost() time.Duration { return max(t.took, t.cpu) }

// quickTest is the cost of a test that is tried before all others.
const quickTest = 60 * time.Millisecond

// program is a package's tests, compiled with all of its mutants.
type program struct {
	dir, path, scratch string
}

// list returns the names of the tests, without benchmarks and without those of other
// projects' programs.
func (p program) list(ctx context.Context) ([]string, error) {
	command := exec.CommandContext(ctx, p.path, "-test.list=.")
	command.Dir = p.dir
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w", err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), elsewhere.MatchString), nil
}

// failure is what a program prints about a test that fails.
var failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// writable returns the directories of the machine that tests may change.
func (p program) writable() []string {
	cache, err := os.UserCacheDir() // the compiler's
	if _, missing := os.Stat(cache); err != nil || missing != nil {
		return []string{p.scratch}
	}
	return []string{p.scratch, cache}
}

// run runs tests until one fails, and returns that one's name if the program printed it, and the
// program's time of the processor. Tests that take longer than the time-out fail, too.
func (p program) run(ctx context.Context, timeout time.Duration, env string, tests ...string) (failed string, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := exec.CommandContext(ctx, p.path, "-test.short", "-test.failfast", "-test.run=^("+strings.Join(tests, "|")+")$")
	// With CI=true, the tests that -test.short leaves out would fail.
	command.Dir, command.Env = p.dir, append(os.Environ(), "CI=", env, "TMPDIR="+p.scratch)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 { // what a test has mounted goes with it
		command.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
		command.Env = append(command.Env, "MUTANTS_WRITABLE="+strings.Join(p.writable(), string(filepath.ListSeparator)))
	}
	end := func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.Cancel, command.WaitDelay = end, time.Second
	out, err := command.CombinedOutput()
	if command.Process != nil {
		_ = end() // the processes that a mutant left behind
	}
	if command.ProcessState != nil {
		cpu = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	}
	if err != nil {
		if printed := failure.FindSubmatch(out); printed != nil {
			failed = string(printed[1])
		}
		return failed, cpu, fmt.Errorf("%w: %s", errors.Join(err, ctx.Err()), out[max(0, len(out)-2000):])
	}
	return "", cpu, nil
}

// alone runs one test with no mutant.
func (p program) alone(ctx context.Context, name string) (testRun, error) {
	file := filepath.Join(p.scratch, "reached-"+name)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return testRun{}, err
	}
	began := time.Now()
	_, cpu, err := p.run(ctx, 5*time.Minute, "MUTANTS_REACHED="+file, name)
	if err != nil {
		return testRun{}, fmt.Errorf("%s fails with no mutant: %w", name, err)
	}
	test := testRun{name: name, took: time.Since(began), cpu: cpu, reached: map[int]bool{}}
	content, err := os.ReadFile(file)
	for line := range bytes.Lines(content) {
		n, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
		test.reached[n] = true
	}
	return test, err
}
