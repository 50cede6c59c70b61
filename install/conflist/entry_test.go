// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestEntry spells the entry and the agent's socket, as the agent sees it. The socket
// is named only where it is not the plugin's default.
func TestEntry(t *testing.T) {
	t.Parallel()
	const (
		head         = `{"type":"capture-cni","kubeconfig":"/k/kubeconfig"`
		capabilities = `,"capabilities":{"io.kubernetes.cri.pod-annotations":true}`
	)
	for _, test := range []struct {
		keys, runDir string
		mode         report.Mode
		want, socket string
	}{
		{"", "/run/capture-cni", report.Insert, head + capabilities + "}", "/run/capture-cni/agent.sock"},
		{" {} \n", "/run/capture-cni", report.Multus, head + "}", "/run/capture-cni/agent.sock"},
		{`{"ipv6": "never"}`, "/run/capture-cni", report.Multus, head + `,"ipv6": "never"}`, "/run/capture-cni/agent.sock"},
		{"", "/run/other", report.Auto, head + capabilities + `,"agentSocket":"/run/other/agent.sock"}`, "/run/other/agent.sock"},
		{`{"ipv6": "never"}`, "/run/other", report.Multus, head + `,"agentSocket":"/run/other/agent.sock","ipv6": "never"}`, "/run/other/agent.sock"},
		{"", "/run/capture-cni", report.MultusChain, head + `,"excludeNamespaces":["openshift-*","kube-*"]}`, "/run/capture-cni/agent.sock"},
		{`{"ipv6": "never"}`, "/run/capture-cni", report.MultusChain, head + `,"excludeNamespaces":["openshift-*","kube-*"],"ipv6": "never"}`, "/run/capture-cni/agent.sock"},
		{`{"excludeNamespaces": []}`, "/run/capture-cni", report.MultusChain, head + `,"excludeNamespaces": []}`, "/run/capture-cni/agent.sock"},
		{`{"agentSocket": ""}`, "/run/other", report.Multus, head + `,"agentSocket": ""}`, ""},
		{`{"agentSocket": "/a/agent.sock"}`, "/run/other", report.Multus, head + `,"agentSocket": "/a/agent.sock"}`, "/a/agent.sock"},
	} {
		entry, err := ParseEntry([]byte(test.keys), test.mode, "/state", test.runDir)
		if err != nil {
			t.Errorf("%s: %v", test.keys, err)
			continue
		}
		if got := string(entry.Text("/k/kubeconfig")); got != test.want {
			t.Errorf("%s: got %s, want %s", test.keys, got, test.want)
		}
		if got := entry.Conf.AgentSocket; got != test.socket {
			t.Errorf("%s: socket %q, want %q", test.keys, got, test.socket)
		}
		if entry.Conf.Kubeconfig != "/state/kubeconfig" {
			t.Errorf("%s: the kubeconfig is %s", test.keys, entry.Conf.Kubeconfig)
		}
	}
	auto, err := ParseEntry([]byte(`{"backend": "auto", "ipv6": "never"}`), report.Multus, "/state", "/run/capture-cni")
	if chosen := auto.With("iptables"); err != nil || auto.Asked != backend.Auto || string(auto.Keys) != `{"ipv6":"never"}` ||
		string(chosen.Keys) != `{"backend":"iptables","ipv6":"never"}` || chosen.Conf.Backend != "iptables" {
		t.Errorf("backend auto: %+v, %v", chosen, err)
	}
}

// TestBadEntry refuses what the plugin would refuse or overlook.
func TestBadEntry(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{
		`[`:                      "expected a JSON object",
		`null`:                   "expected a JSON object",
		`{"type": "other"}`:      "which the agent or the runtime sets",
		`{"kubeconfig": "/k"}`:   "which the agent or the runtime sets",
		`{"capabilities": {}}`:   "which the agent or the runtime sets",
		`{"name": "n"}`:          "which the agent or the runtime sets",
		`{"cniVersion": "1"}`:    "which the agent or the runtime sets",
		`{"agentSocket": 5}`:     `"agentSocket" is 5`,
		`{"ipv6": 5, "ipv4": 5}`: `"ipv6" is 5`,
		`{"ipv6": "sometimes"}`:  `"ipv6" is "sometimes"`,
		`{"ipV6": "never"}`:      `"ipV6" is not known`,
	} {
		if _, err := ParseEntry([]byte(keys), report.Insert, "/state", "/run/other"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", keys, err, want)
		}
	}
}

// TestNodeImage expects the drop-in that the page about node images writes to be what verify compares it
// with.
func TestNodeImage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../deploy/guides/node-images.md")
	lab.Check(t, err)
	_, text, _ := strings.Cut(string(page), "capture-cni.conf <<'END'\n   ")
	text, _, _ = strings.Cut(text, "   END\n")
	entry, err := ParseEntry(nil, report.DropIn, "/var/lib/kubelet/pki", config.RunDirectory)
	lab.Check(t, err)
	if want := string(Indented(entry.Text(entry.Conf.Kubeconfig))); strings.ReplaceAll(text, "\n   ", "\n") != want {
		t.Errorf("the page has %s, want %s", text, want)
	}
}
