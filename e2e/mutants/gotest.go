// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const module = "github.com/capture-cni/capture-cni"

// testTimeout ends a test that a mutant makes wait for ever.
const testTimeout = 10 * time.Minute

// results are the results of one run of go test.
type results struct {
	actions map[string]string // "pass", "fail" or "skip", by package and test
	stuck   bool              // go test ended it at testTimeout
	output  string            // its last part
}

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// goTest runs the tests of a package, in its directory because it may be of a module of its
// own, with more arguments and variables than usual. A test that fails is no error. An
// interrupt does not reach tests: they end, and clean up what they started.
func goTest(directory string, env []string, args ...string) (results, error) {
	command := exec.Command("go", append([]string{"test", "-json", "-vet=off", "-count=1", "-timeout=" + testTimeout.String()}, args...)...)
	command.Dir, command.Env = directory, append(os.Environ(), env...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal interrupts its foreground group
	out, err := command.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return results{}, fmt.Errorf("running go %s: %w", strings.Join(command.Args[1:], " "), err)
	}
	return parse(out), nil
}

// maxOutput limits what is kept of the output.
const maxOutput = 4 << 10

func parse(out []byte) results {
	r := results{actions: map[string]string{}}
	var output strings.Builder
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			output.Write(line) // an error of go itself
			continue
		}
		switch e.Action {
		case "output", "build-output":
			r.stuck = r.stuck || strings.HasPrefix(e.Output, "panic: test timed out")
			output.WriteString(e.Output)
		case "pass", "fail", "skip":
			r.actions[e.Package+" "+e.Test] = e.Action
		}
	}
	r.output = output.String()
	r.output = strings.TrimSpace(r.output[max(0, len(r.output)-maxOutput):])
	return r
}

// fault returns why the results do not prove that a test noticed a mutant, "" if they
// do.
func (r results) fault(t test) string {
	switch action := r.actions[t.key()]; {
	case r.stuck:
		return fmt.Sprintf("%s did not end within %s: expected it to fail by itself", t, testTimeout)
	case action == "fail":
		return ""
	case action == "pass":
		return "SURVIVED: " + t.String() + " passes"
	case action == "skip":
		return t.String() + " was skipped:\n" + r.output
	}
	return t.String() + " did not run: the mutant does not compile, or the test is gone:\n" + r.output
}
