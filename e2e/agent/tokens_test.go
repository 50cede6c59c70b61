// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// add captures a new namespace for the pod web.
func (n *node) add(t *testing.T, lookupTimeout string) error {
	t.Helper()
	host := machine.Sandbox(t)
	if out, err := n.Call("ADD", "web", host.Path(), lookupTimeout); err != nil {
		return errors.Join(fmt.Errorf("%w: %s", err, out), machine.ExpectNoRules(host))
	}
	return host.CheckRules(t.Context(), machine.NewPod("web", true))
}

// TestTokens has tokens that expire after seconds while pods start all the time: no ADD
// fails.
func TestTokens(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.API.IssueTokens(4 * time.Second)
	n.PutPod("web", true)
	a := n.StartReady(t, "--mode", "insert")
	start, requests := time.Now(), n.API.TokenRequests()
	for ; len(requests) < 4; requests = n.API.TokenRequests() {
		if err := n.add(t, "30s"); err != nil {
			t.Fatalf("after %s: %v\n%s", time.Since(start), err, a.Log)
		}
	}
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("three more tokens were requested within %s", took)
	}
	for _, request := range requests {
		if bound := request.BoundObjectRef; bound == nil || bound.Kind != "Node" || bound.Name != "node-1" {
			t.Errorf("a token is bound to %+v", bound)
		}
	}
}

// TestKeysChange changes the API server's keys while the agent runs and does not answer
// requests of pods: an ADD waits until the agent has replaced the token, long before it
// expires.
func TestKeysChange(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.API.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		watched := strings.HasSuffix(r.URL.Path, "/pods") // the plugin reads one pod
		if watched {
			kubeapi.WriteStatus(w, r, http.StatusForbidden, metav1.StatusReasonForbidden, "pods is forbidden")
		}
		return watched
	})
	n.PutPod("web", true)
	a := n.Start(t, "--mode", "insert")
	lab.Eventually(t, func() error { return n.add(t, "1s") })
	n.API.ChangeKeys()
	if err := n.add(t, "60s"); err != nil {
		t.Errorf("%v\n%s", err, a.Log)
	}
	lab.Check(t, a.ExpectMetric("capture_cni_token_rejected_total 1"))
	if requests := n.API.TokenRequests(); len(requests) != 2 {
		t.Errorf("%d tokens were requested", len(requests))
	}
}

// TestTokenWithoutBinding has an API server that can't bind tokens to a Node.
func TestTokenWithoutBinding(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.API.RefuseNodeBinding()
	n.Start(t, "--mode", "insert").Ready(t)
	if got := n.API.TokenRequests(); len(got) != 1 || got[0].BoundObjectRef != nil || *got[0].ExpirationSeconds != 86400 {
		t.Errorf("requested %+v", got)
	}
}

// TestAgentGone has a token expire without an agent: pods outside the mesh start,
// meshed ones fail with an error that says why.
func TestAgentGone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.API.IssueTokens(2 * time.Second)
	n.PutPod("web", true)
	n.PutPod("plain", false)
	a := n.StartReady(t, "--mode", "insert")
	lab.Check(t, n.add(t, "5s"))
	a.Stop(t)
	n.API.ChangeKeys()
	if out, err := n.Call("ADD", "plain", machine.Sandbox(t).Path(), "1s"); err != nil {
		t.Errorf("a pod outside the mesh: %v: %s", err, out)
	}
	err := n.add(t, "1s")
	if err == nil || !strings.Contains(err.Error(), n.StateDir+"/token") || !strings.Contains(err.Error(), "check that the node agent runs") {
		t.Errorf("a meshed pod: %v", err)
	}
	if out, err := n.Call("DEL", "web", machine.Sandbox(t).Path(), "1s"); err != nil {
		t.Errorf("DEL: %v: %s", err, out)
	}
}

// TestRejectedToken has the API server's keys change while no agent runs: the next agent
// checks the token at its start, and not only minutes later.
func TestRejectedToken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Start(t, "--mode", "insert").StopOnceReady(t)
	n.API.ChangeKeys()
	a := n.StartReady(t, "--mode", "insert")
	a.WaitForMetric(t, "capture_cni_token_rejected_total 1")
	n.PutPod("web", true)
	lab.Check(t, n.add(t, "5s"))
	lab.Check(t, a.ExpectMetric("capture_cni_token_requests_total 1")) // not the one that it found
}

// TestNewCA replaces the cluster's CA: the agent copies the new one.
func TestNewCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Start(t, "--mode", "insert").Ready(t)
	bundle := append(n.API.Cert.PEM, n.API.Cert.PEM...)
	lab.Check(t, os.WriteFile(filepath.Dir(n.Access)+"/ca.crt", bundle, 0o600))
	lab.Eventually(t, func() error {
		content, err := os.ReadFile(n.StateDir + "/ca.crt")
		if err == nil && string(content) != string(bundle) {
			err = &unexpected{"the new CA", "the old one"}
		}
		return err
	})
}
