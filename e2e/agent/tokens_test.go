// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// newPod returns a pod of the namespace shop.
func newPod(name string, meshed bool) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "shop", name, podUID
	p.Spec.Containers = []corev1.Container{{Name: "app"}}
	if meshed {
		p.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}})
	}
	return p
}

// pod adds a pod to the API server.
func (n *node) pod(name string, meshed bool) { n.api.Put(newPod(name, meshed)) }

// call calls the installed plugin with our entry, as a runtime does.
func (n *node) call(command, pod, netns, lookupTimeout string) (string, error) {
	plugin := exec.Command(filepath.Join(n.binDir, "capture-cni"))
	plugin.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=c", "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=" + n.binDir,
		"CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod + ";K8S_POD_UID=" + n.uid(pod),
	}
	annotations := ""
	if pod == "plain" {
		annotations = `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"kubernetes.io/config.source":"api"}},`
	}
	plugin.Stdin = strings.NewReader(fmt.Sprintf(`{%s"cniVersion":"1.0.0","name":"n","type":"capture-cni","kubeconfig":%q,"lookupTimeout":%q,"prevResult":{"cniVersion":"1.0.0"}}`,
		annotations, n.stateDir+"/kubeconfig", lookupTimeout))
	out, err := plugin.CombinedOutput()
	return string(out), err
}

func sandbox(t *testing.T) *lab.Host {
	t.Helper()
	host, err := newSandbox(t)
	lab.Check(t, err)
	return host
}

// newSandbox is for any goroutine of a test.
func newSandbox(t *testing.T) (*lab.Host, error) {
	t.Helper()
	host, err := lab.NewHost()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = host.Close() })
	return host, host.AddAddresses("lo", "10.77.0.2/32")
}

// add captures a new namespace for the pod web.
func (n *node) add(t *testing.T, lookupTimeout string) error {
	t.Helper()
	host := sandbox(t)
	if out, err := n.call("ADD", "web", host.Path(), lookupTimeout); err != nil {
		return errors.Join(fmt.Errorf("%w: %s", err, out), expectNoRules(host))
	}
	return host.CheckRules(t.Context(), newPod("web", true))
}

// TestTokens has tokens that expire after seconds while pods start all the time: no ADD
// fails.
func TestTokens(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.api.IssueTokens(6 * time.Second)
	n.pod("web", true)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(250 * time.Millisecond) {
		if err := n.add(t, "30s"); err != nil {
			t.Fatalf("after %s: %v\n%s", time.Since(start), err, a.log)
		}
	}
	requests := n.api.TokenRequests()
	if len(requests) < 4 || len(requests) > 20 {
		t.Errorf("%d tokens were requested in 20 s", len(requests))
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
	n.api.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		watched := strings.HasSuffix(r.URL.Path, "/pods") // the plugin reads one pod
		if watched {
			kubeapi.WriteStatus(w, r, http.StatusForbidden, metav1.StatusReasonForbidden, "pods is forbidden")
		}
		return watched
	})
	n.pod("web", true)
	a := n.start(t, "--mode", "insert")
	lab.Eventually(t, func() error { return n.add(t, "1s") })
	n.api.ChangeKeys()
	if err := n.add(t, "60s"); err != nil {
		t.Errorf("%v\n%s", err, a.log)
	}
	lab.Check(t, expectMetric(a, "capture_cni_token_rejected_total 1"))
	if requests := n.api.TokenRequests(); len(requests) != 2 {
		t.Errorf("%d tokens were requested", len(requests))
	}
}

// TestTokenWithoutBinding has an API server that can't bind tokens to a Node.
func TestTokenWithoutBinding(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.api.RefuseNodeBinding()
	n.start(t, "--mode", "insert").ready(t)
	if got := n.api.TokenRequests(); len(got) != 1 || got[0].BoundObjectRef != nil || *got[0].ExpirationSeconds != 86400 {
		t.Errorf("requested %+v", got)
	}
}

// TestAgentGone has a token expire without an agent: pods outside the mesh start,
// meshed ones fail with an error that says why.
func TestAgentGone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.api.IssueTokens(2 * time.Second)
	n.pod("web", true)
	n.pod("plain", false)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	lab.Check(t, n.add(t, "5s"))
	a.stop(t)
	n.api.ChangeKeys()
	if out, err := n.call("ADD", "plain", sandbox(t).Path(), "1s"); err != nil {
		t.Errorf("a pod outside the mesh: %v: %s", err, out)
	}
	err := n.add(t, "1s")
	if err == nil || !strings.Contains(err.Error(), n.stateDir+"/token") || !strings.Contains(err.Error(), "check that the node agent runs") {
		t.Errorf("a meshed pod: %v", err)
	}
	if out, err := n.call("DEL", "web", sandbox(t).Path(), "1s"); err != nil {
		t.Errorf("DEL: %v: %s", err, out)
	}
}

// TestRejectedToken has the API server's keys change while no agent runs: the next agent
// checks the token at its start, and not only minutes later.
func TestRejectedToken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t, "--mode", "insert").stopOnceReady(t)
	n.api.ChangeKeys()
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	lab.Eventually(t, func() error { return expectMetric(a, "capture_cni_token_rejected_total 1") })
	n.pod("web", true)
	lab.Check(t, n.add(t, "5s"))
	lab.Check(t, expectMetric(a, "capture_cni_token_requests_total 1")) // not the one that it found
}

// TestNewCA replaces the cluster's CA: the agent copies the new one.
func TestNewCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start(t, "--mode", "insert").ready(t)
	bundle := append(n.api.Cert.PEM, n.api.Cert.PEM...)
	lab.Check(t, os.WriteFile(filepath.Dir(n.access)+"/ca.crt", bundle, 0o600))
	lab.Eventually(t, func() error {
		content, err := os.ReadFile(n.stateDir + "/ca.crt")
		if err == nil && string(content) != string(bundle) {
			err = &unexpected{"the new CA", "the old one"}
		}
		return err
	})
}
