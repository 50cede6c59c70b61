// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// startWithoutToken runs the agent as in its pod, with --token-on-node=false.
func (n *node) startWithoutToken(t *testing.T, args ...string) *machine.Agent {
	t.Helper()
	return n.StartBehind(t, []string{"env", "POD_NAMESPACE=mesh", "POD_NAME=agent", "POD_UID=uid-of-the-agent"},
		append([]string{"--mode", "insert", "--token-on-node=false"}, args...)...)
}

// credentials returns what is on the node for requests to the API server.
func (n *node) credentials(t *testing.T) (found []string) {
	t.Helper()
	for _, path := range []string{n.StateDir + "/kubeconfig", n.StateDir + "/token", n.StateDir + "/ca.crt", n.RunDir + "/kubeconfig", n.RunDir + "/token", n.BinDir + "/capture-cni-lookup", n.StateDir + "/capture-cni-lookup.last-good"} {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, strings.TrimPrefix(path, n.Dir))
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	return found
}

// TestNoTokenOnNode starts a fresh node without credentials: pods are captured, no token
// is requested, and verify agrees while the agent runs, and only then.
func TestNoTokenOnNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.PreparePods(t)
	n.API.Put(agentPod())
	a := n.startWithoutToken(t)
	a.Ready(t)
	lab.Check(t, n.StartAndStop(t, "web"))
	lab.Check(t, n.StartAndStop(t, "plain"))
	if left := n.credentials(t); len(left) > 0 {
		t.Errorf("on the node: %q", left)
	}
	if requests := n.API.TokenRequests(); len(requests) > 0 {
		t.Errorf("tokens were requested: %v", requests)
	}
	if out, err := n.Command("verify", "--mode", "insert", "--token-on-node=false"); err != nil {
		t.Errorf("verify: %v: %s", err, out)
	}
	a.Stop(t)
	if out, err := n.Command("verify", "--mode", "insert", "--token-on-node=false"); err == nil || !strings.Contains(out, "pods: asking the node agent at ") {
		t.Errorf("verify without the agent: %v: %s", err, out)
	}
	if out, err := n.Call("ADD", "plain", machine.Sandbox(t).Path(), "1s"); err != nil {
		t.Errorf("a pod outside the mesh, whose annotations the runtime passes: %v: %s", err, out)
	}
}

// TestAgentRestarts kills the agent of a node without credentials: an ADD waits for the
// next agent, and succeeds.
func TestAgentRestarts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.PreparePods(t)
	n.API.Put(agentPod())
	a := n.startWithoutToken(t)
	a.Ready(t)
	lab.Check(t, a.Process.Kill())
	_ = a.Wait()
	started := make(chan error, 1)
	go func() {
		_, err := n.StartPod(t, "web")
		started <- err
	}()
	lab.Eventually(t, func() error {
		select {
		case err := <-started:
			t.Fatalf("the pod started without an agent: %v", err)
			return err
		default:
			return runs(n.BinDir + "/capture-cni")
		}
	})
	n.startWithoutToken(t) // A plugin that does not wait fails sooner than this agent listens.
	lab.Check(t, <-started)
}

// runs returns an error unless a process runs a program.
func runs(program string) error {
	processes, err := filepath.Glob("/proc/[0-9]*/exe")
	for _, process := range processes {
		if path, err := os.Readlink(process); err == nil && path == program {
			return nil
		}
	}
	return errors.Join(err, errors.New("no process runs "+program))
}

// TestCredentialsAreWithdrawn changes --token-on-node to false and back.
func TestCredentialsAreWithdrawn(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.PreparePods(t)
	n.API.Put(agentPod())
	a := n.StartReady(t, "--mode", "insert")
	if got := n.credentials(t); len(got) != 5 {
		t.Errorf("on the node: %q", got)
	}
	a.Stop(t)
	a = n.startWithoutToken(t)
	a.Ready(t)
	if left := n.credentials(t); len(left) > 0 {
		t.Errorf("left on the node: %q", left)
	}
	lab.Check(t, n.StartAndStop(t, "web"))
	a.Stop(t)
	a = n.StartReady(t, "--mode", "insert")
	if got := n.credentials(t); len(got) != 5 {
		t.Errorf("on the node: %q", got)
	}
	a.Stop(t)
	lab.Check(t, n.StartAndStop(t, "web"))
}

// TestCredentialsStay keeps credentials that a plugin needs: one of an older release,
// which does not ask the agent, and any while the agent does not get pods.
func TestCredentialsStay(t *testing.T) {
	t.Parallel()
	t.Run("older plugin", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.API.Put(agentPod())
		n.Start(t, "--mode", "insert").StopOnceReady(t)
		// It needs its kubeconfig for each pod, as plugins did before they asked the agent.
		const older = `#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}' ;;
*) conf=$(cat); file=${conf#*'"kubeconfig":"'}; file=${file%%'"'*}
   [ -e "$file" ] || { echo "{\"code\":11,\"msg\":\"$file is missing\"}"; exit 1; } ;;
esac
`
		release := t.TempDir()
		lab.Check(t, lab.WriteProgram(release+"/capture-cni", []byte(older)))
		a := n.startWithoutToken(t, "--plugin", release+"/capture-cni")
		body := a.Ready(t, http.StatusServiceUnavailable)
		for !strings.Contains(body, "kubeconfig is missing") {
			body = a.Ready(t, http.StatusServiceUnavailable)
		}
		if got := n.credentials(t); len(got) != 5 {
			t.Errorf("on the node: %q", got)
		}
		a.Stop(t)
		n.startWithoutToken(t).Ready(t)
		if left := n.credentials(t); len(left) > 0 {
			t.Errorf("left on the node: %q", left)
		}
	})
	t.Run("agent may not list pods", func(t *testing.T) {
		t.Parallel()
		n := newNode(t)
		n.PreparePods(t)
		n.API.Put(agentPod())
		n.Start(t, "--mode", "insert").StopOnceReady(t)
		n.API.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/pods") {
				kubeapi.WriteStatus(w, r, http.StatusForbidden, "Forbidden", "pods is forbidden")
				return true
			}
			return false
		})
		a := n.startWithoutToken(t)
		lab.Eventually(t, func() error {
			body := a.Ready(t, http.StatusServiceUnavailable)
			if !strings.Contains(body, "pods: the agent has not read its node's pods yet") || !strings.Contains(body, "credentials: the credentials stay") {
				return fmt.Errorf("/readyz says %s", body)
			}
			return nil
		})
		if got := n.credentials(t); len(got) != 5 {
			t.Errorf("on the node: %q", got)
		}
		lab.Check(t, n.StartAndStop(t, "web")) // the agent reads it
		n.API.Misbehave(nil)
		a.Ready(t)
		if left := n.credentials(t); len(left) > 0 {
			t.Errorf("left on the node: %q", left)
		}
	})
}

// TestRefusedSettings expects errors for settings with which no pod could be read.
func TestRefusedSettings(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(netConf, []byte(`{"agentSocket": ""}`), 0o600))
	for want, args := range map[string][]string{
		`--token-on-node is false and the plugin's key "agentSocket" is empty`: {"--token-on-node=false", "--netconf", netConf},
		"needs the agent's own pod in POD_NAMESPACE, POD_NAME and POD_UID":     {"--token-on-node=false"},
		`"agentSocket" is "/tmp/agent.sock": expected agent.sock in --run-dir`: {"--netconf", `{"agentSocket": "/tmp/agent.sock"}`},
		"expected at most 107; set a shorter --run-dir":                        {"--run-dir", n.Dir + "/" + strings.Repeat("r", 100)},
	} {
		if out, err := n.Command("run", slices.Concat([]string{"--mode", "insert", "--listen", "127.0.0.1:0"}, args)...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}
