// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// WaitForMetric waits until /metrics has a line.
func (a *Agent) WaitForMetric(t *testing.T, line string) {
	t.Helper()
	lab.Eventually(t, func() error { return a.ExpectMetric(line) })
}

// ExpectMetric returns an error unless /metrics has a line.
func (a *Agent) ExpectMetric(want string) error {
	_, body := a.Get("/metrics")
	if !strings.Contains(body, "\n"+want+"\n") {
		return fmt.Errorf("got %s, want %s", body, want)
	}
	return nil
}

// HasExited reports whether the agent has ended by itself.
func (a *Agent) HasExited(t *testing.T) bool {
	t.Helper()
	var info unix.Siginfo // stays zero while the process runs
	lab.Check(t, unix.Waitid(unix.P_PID, a.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil))
	return info.Signo != 0
}

// Agent is a process of the agent, with the URL of its probes.
type Agent struct {
	*exec.Cmd
	URL string
	Log *lab.Log
}

// Start runs the agent until the test ends.
func (n *Node) Start(t *testing.T, args ...string) *Agent {
	t.Helper()
	return n.StartBehind(t, nil, args...)
}

// StartReady runs the agent until the test ends, and waits until it is ready.
func (n *Node) StartReady(t *testing.T, args ...string) *Agent {
	t.Helper()
	a := n.Start(t, args...)
	a.Ready(t)
	return a
}

// StartBehind runs the agent as the child of another command, which limits it.
func (n *Node) StartBehind(t *testing.T, command []string, args ...string) *Agent {
	t.Helper()
	address, err := lab.FreeAddress()
	lab.Check(t, err)
	a := &Agent{URL: "http://" + address, Log: &lab.Log{}}
	argv := slices.Concat(command, []string{filepath.Join(n.Release, "capture-cni-node"), "run", "--listen", address}, n.Flags(args...))
	a.Cmd = exec.Command(argv[0], argv[1:]...)
	a.Stdout, a.Stderr = a.Log, a.Log
	a.Env = append(os.Environ(), NoRuntime)
	lab.Check(t, a.Start())
	t.Cleanup(func() { _ = a.Process.Kill(); _ = a.Wait() })
	return a
}

// Stop ends the agent as a runtime does.
func (a *Agent) Stop(t *testing.T) {
	t.Helper()
	lab.Check(t, a.Process.Signal(syscall.SIGTERM))
	if err := a.Wait(); err != nil {
		t.Errorf("the agent exited with %v: %s", err, a.Log)
	}
}

// WaitForLog waits until the agent has logged a text.
func (a *Agent) WaitForLog(t *testing.T, text string) {
	t.Helper()
	lab.Eventually(t, func() error {
		if log := a.Log.String(); !strings.Contains(log, text) {
			return fmt.Errorf("the log has no %q: %s", text, log)
		}
		return nil
	})
}

// Get requests a path of the agent.
func (a *Agent) Get(path string) (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(content)
}

// Ready waits until /readyz answers 200, or another status, and returns the body.
func (a *Agent) Ready(t *testing.T, want ...int) (body string) {
	t.Helper()
	want = append(want, http.StatusOK)
	lab.Eventually(t, func() error {
		var status int
		if status, body = a.Get("/readyz"); status != want[0] {
			return fmt.Errorf("status %d, want %d: %s\n%s", status, want[0], body, a.Log)
		}
		return nil
	})
	return body
}

// ExpectReadyz returns an error unless /readyz contains a text.
func (a *Agent) ExpectReadyz(text string) error {
	_, body := a.Get("/readyz")
	if !strings.Contains(body, text) {
		return fmt.Errorf("got %s, want %s", body, text)
	}
	return nil
}

// WaitForReadyz waits until /readyz contains a text.
func (a *Agent) WaitForReadyz(t *testing.T, text string) {
	t.Helper()
	lab.Eventually(t, func() error { return a.ExpectReadyz(text) })
}

// StopOnceReady waits until the agent is ready, and ends it.
func (a *Agent) StopOnceReady(t *testing.T) {
	t.Helper()
	a.Ready(t)
	a.Stop(t)
}
