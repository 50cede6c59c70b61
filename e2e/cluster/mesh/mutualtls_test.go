// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// TestMutualTLS has two pods on two nodes talk by mTLS through Envoy itself, also while the
// server is rolled out, and while there is no istiod.
func TestMutualTLS(t *testing.T) {
	c.InstallChart(t)
	installForEnvoy(t)
	m := startEnvoyMesh(t)
	for _, pod := range []string{"client", m.server(t)} {
		expectInjected(t, m.Get(t, pod), sidecars["native"])
		m.ExpectCaptured(t, pod)
	}
	m.expectMutualTLS(t)
	m.expectClosed(t)
	t.Run("repair", m.repair)
	t.Run("rollout", m.rollOut)
	t.Run("without istiod", func(t *testing.T) {
		istiod(t, 0)
		defer m.rollOut(t)
		defer istiod(t, 1)
		m.expectMutualTLS(t)
	})
}

// repair deletes the client's rules, which the guard restores. Meanwhile the client reaches
// the server without its proxy, and so without an identity: no request is answered.
func (m envoyMesh) repair(t *testing.T) {
	sandbox, err := m.Sandbox(t.Context(), "client")
	lab.Check(t, err)
	netns, err := podnet.Open(t.Context(), sandbox.Path())
	lab.Check(t, err)
	before := len(m.answers(t, "client"))
	lab.Check(t, errors.Join(netns.Remove(t.Context()), netns.Close()))
	lab.Eventually(t, func() error { return m.CheckCaptured(t.Context(), m.Get(t, "client")) })
	m.expectMutualTLS(t)
	answered := m.answers(t, "client")[before:]
	reset := func(answer string) bool {
		return strings.HasSuffix(answer, "connection reset by peer") || strings.HasSuffix(answer, "EOF")
	}
	if !slices.ContainsFunc(answered, reset) {
		t.Errorf("without rules, no request failed: %q", answered)
	}
	m.expectIdentity(t, slices.DeleteFunc(answered, reset))
}

// rollOut replaces the server's pod. Its proxy drains while the application still serves, so
// no request of the client fails.
func (m envoyMesh) rollOut(t *testing.T) {
	before, older := len(m.answers(t, "client")), m.server(t)
	m.Kubectl(t, "", "rollout", "restart", "deployment/server")
	m.rolledOut(t)
	m.Kubectl(t, "", "wait", "--for=delete", suite.KubectlTimeout, "pod/"+older)
	newer := m.server(t)
	during := len(m.answers(t, "client"))
	m.expectIdentity(t, m.answers(t, "client")[before:during])
	for _, answer := range m.next(t, during, 10) {
		if !strings.HasPrefix(answer, "200 "+newer+"/") {
			t.Errorf("once %s has ended, the client was answered %q", older, answer)
		}
	}
}

// istiod scales the control plane.
func istiod(t *testing.T, replicas int) {
	t.Helper()
	c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "scale", "deployment/istiod", "--replicas="+strconv.Itoa(replicas))
	if replicas == 0 {
		c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "wait", "--for=delete", suite.KubectlTimeout, "pod", "--selector=app=istiod")
		return
	}
	c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "rollout", "status", "deployment/istiod", suite.KubectlTimeout)
}

// TestMutualTLSWithIstioCNI has the same pods talk likewise, captured by Istio's own plugin.
func TestMutualTLSWithIstioCNI(t *testing.T) {
	c.ReplaceByIstioCNI(t)
	installForEnvoy(t)
	m := startEnvoyMesh(t)
	for _, pod := range []string{"client", m.server(t)} {
		expectInjected(t, m.Get(t, pod), sidecars["native"])
		if rules := m.Rules(t, pod); rules.Backend != "" || rules.Foreign == "" {
			t.Errorf("%s has the rules %+v, want istio-cni's", pod, rules)
		}
	}
	m.expectMutualTLS(t)
	m.expectClosed(t)
	t.Run("rollout", m.rollOut)
}
