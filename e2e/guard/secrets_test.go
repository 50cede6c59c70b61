// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"
)

// TestExplainHasNoSecret quotes only annotations that have a form: an explanation
// goes into support archives (S13).
func TestExplainHasNoSecret(t *testing.T) {
	const secret = "hunter2-7Gq"
	n := newNode()
	p := n.run(t, "web")
	made, now := p.sandbox.Annotations, n.pods["web"].Annotations
	made["sidecar.istio.io/status"], now["sidecar.istio.io/status"] = `{"psk":"`+secret+`"}`, `{"psk":"`+secret+`2"}`
	for _, key := range []string{"proxy.istio.io/config", "istio.io/other", secret + ".istio.io/x", "kubectl.kubernetes.io/last-applied-configuration"} {
		made[key], now[key] = `{"name":"ETCD_PASSWORD","value":"`+secret+`"}`, secret
	}
	long := strings.Repeat("8080,", 1000) + "9090"
	made["traffic.sidecar.istio.io/excludeInboundPorts"], now["traffic.sidecar.istio.io/excludeInboundPorts"] = long, long
	now["traffic.sidecar.istio.io/excludeOutboundPorts"] = "5432"
	explained := n.explain(t)
	if strings.Contains(explained, secret) {
		t.Errorf("it has a secret:\n%s", explained)
	}
	for _, want := range []string{"sidecar.istio.io/status: present\n", "8080,8080", "(5004 bytes, cut after 1024)", `excludeOutboundPorts: nothing; now "5432"`} {
		if !strings.Contains(explained, want) {
			t.Errorf("it does not say %q:\n%s", want, explained)
		}
	}
	if len(explained) > 8<<10 {
		t.Errorf("it has %d bytes", len(explained))
	}
}
