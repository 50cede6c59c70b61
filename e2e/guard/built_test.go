// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// programs is the directory of the program that buildAgent has built, "" for none.
var programs string

func TestMain(m *testing.M) {
	code := m.Run()
	if programs != "" {
		_ = os.RemoveAll(programs) // best effort: it is in /tmp
	}
	os.Exit(code)
}

// buildAgent builds the program of agent and guard, once for all tests.
var buildAgent = sync.OnceValues(func() (program string, err error) {
	if programs, err = os.MkdirTemp("", "guard-"); err != nil {
		return "", err
	}
	return filepath.Join(programs, "capture-cni-node"), lab.Build(context.Background(), programs, "./install/capture-cni-node")
})

// builtGuard is a process of the program.
type builtGuard struct {
	*exec.Cmd
	log     *lab.Log
	address string // of its metrics
}

// startGuard starts the built guard with this run directory, until the test ends.
func startGuard(t *testing.T, runDir string, flags ...string) *builtGuard {
	t.Helper()
	return startBy(t, nil, nil, append([]string{"--run-dir", runDir}, flags...)...)
}

// startBy starts it by another program, with more variables in its environment.
func startBy(t *testing.T, by, environment []string, flags ...string) *builtGuard {
	t.Helper()
	program, err := buildAgent()
	lab.Check(t, err)
	b := &builtGuard{log: &lab.Log{}}
	b.address, err = lab.FreeAddress()
	lab.Check(t, err)
	argv := append(by, program, "guard", "--state-dir", "/nonexistent", "--listen", b.address)
	argv = append(argv, flags...)
	b.Cmd = exec.Command(argv[0], argv[1:]...)
	b.Env, b.Stderr = append(os.Environ(), environment...), b.log
	lab.Check(t, b.Start())
	t.Cleanup(func() {
		_ = b.Process.Signal(syscall.SIGTERM)
		_ = b.Wait() // it was waited for, or fails as its test does
		if t.Failed() {
			t.Logf("the guard's log:\n%s", b.log)
		}
	})
	return b
}

// waitForCaptured waits until the guard reports this many captured pods.
func (b *builtGuard) waitForCaptured(t *testing.T, pods int) {
	t.Helper()
	lab.Eventually(t, func() error {
		got, err := b.metric(`pods{mesh="istio",state="captured"}`)
		if err == nil && got != float64(pods) {
			err = fmt.Errorf("%v of %d pods are captured", got, pods)
		}
		return err
	})
}

// metric returns the value of a series.
func (b *builtGuard) metric(series string) (float64, error) {
	answer, err := http.Get("http://" + b.address + "/metrics")
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(text), "\ncapture_cni_"+series+" ")
	if !found {
		return 0, fmt.Errorf("the guard has no metric %s", series)
	}
	value, _, _ := strings.Cut(after, "\n")
	return strconv.ParseFloat(value, 64)
}
