// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// TestUpdateNeedsListeners updates the rules of pods whose proxy listens by TCP at its ports for
// connections, but not at its port for DNS: only rules that lead TCP there need that listener.
func TestUpdateNeedsListeners(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*capture.Intent)
		fault  string
	}{
		"Istio":                       {func(*capture.Intent) {}, ""},
		"Istio, DNS by TCP and UDP":   {func(in *capture.Intent) { in.CaptureDNS = true }, "port 15053"},
		"Istio, another inbound port": {func(in *capture.Intent) { in.InboundPort = 15007 }, "port 15007"},
		"Kuma, DNS by UDP":            {func(in *capture.Intent) { in.Mesh, in.CaptureDNS = config.Kuma, true }, ""},
		"Kuma, another outbound port": {func(in *capture.Intent) { in.Mesh, in.CaptureDNS, in.OutboundPort = config.Kuma, true, 15002 }, "port 15002"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := lab.StartHost(t)
			for _, address := range []string{":15001", ":15006"} {
				server, err := host.ServeProxy(lab.Owner{UID: 1337, GID: 1337}, "tcp", address, "proxy")
				lab.Check(t, err)
				t.Cleanup(func() { _ = server.Close() })
			}
			netns, err := podnet.Open(t.Context(), host.Path())
			lab.Check(t, err)
			defer netns.Close()
			var in capture.Intent
			rules := sample.Rules(func(i *capture.Intent) { i.DNSPort = 15053 }, tt.change, func(i *capture.Intent) { in = *i })
			switch err := Update(t.Context(), netns, in); {
			case tt.fault == "":
				lab.Check(t, err)
			case err == nil || !strings.Contains(err.Error(), tt.fault):
				t.Errorf("got %v, want a fault with %q", err, tt.fault)
			}
			if updated := sample.Inspect(t, host).Stamp == rules.Stamp(); updated != (tt.fault == "") {
				t.Errorf("its rules are the new ones: %v", updated)
			}
		})
	}
}

// TestHasUID has the uids of a listener, as the kernel reports them on the node, and the proxy's.
func TestHasUID(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listener, proxy uint32
		want            bool
	}{
		{1337, 1337, true},
		{1337, 1000, false}, // netconf.mesh.proxyUID was changed since the pod started
		{0, 1337, true},
		{131072 + 1337, 1337, true}, // in a user namespace
		{131072 + 1000, 1337, false},
		{1000650000, 1000650000, true}, // of OpenShift
		{1000650000, 1000650001, false},
	} {
		if got := hasUID(Socket{UID: tt.listener}, tt.proxy); got != tt.want {
			t.Errorf("a listener of %d is that of proxy %d: %v", tt.listener, tt.proxy, got)
		}
	}
}
