// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"net/netip"
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
			host, netns := hostWithProxy(t)
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

// hostWithProxy returns a namespace in which the proxy listens at its ports for connections.
func hostWithProxy(t *testing.T) (*lab.Host, *podnet.Namespace) {
	t.Helper()
	host := lab.StartHost(t)
	for _, address := range []string{":15001", ":15006"} {
		server, err := host.ServeProxy(lab.Owner{UID: 1337, GID: 1337}, "tcp", address, "proxy")
		lab.Check(t, err)
		t.Cleanup(func() { _ = server.Close() })
	}
	netns, err := podnet.Open(t.Context(), host.Path())
	lab.Check(t, err)
	t.Cleanup(func() { netns.Close() })
	return host, netns
}

// TestUpdateToFence resets the connections of a pod that gets a fence, and not those of a pod that had one.
func TestUpdateToFence(t *testing.T) {
	t.Parallel()
	host, netns := hostWithProxy(t)
	var in capture.Intent
	sample.Apply(t, host, sample.Rules(func(i *capture.Intent) { in = *i }))
	in.Fence = &capture.Fence{}
	for _, kept := range []bool{false, true} {
		open := Connection{netip.MustParseAddrPort("10.1.2.3:4000"), netip.MustParseAddrPort("10.1.2.4:80"), Open}
		host.Within(t, func() error { return CreateEntries(t.Context(), []Connection{open}) })
		in.ExcludeInboundPorts = append(in.ExcludeInboundPorts, capture.Ports(80)...)
		lab.Check(t, Update(t.Context(), netns, in))
		host.Within(t, func() error {
			entries, _, err := Entries(t.Context(), 10, func(Entry) bool { return true })
			if (len(entries) == 1) != kept {
				t.Errorf("entries %v, kept: %v", entries, kept)
			}
			return err
		})
	}
}

// TestDeleteStaleLate deletes the stale entries of a pod, and no others, although the caller's time is up.
func TestDeleteStaleLate(t *testing.T) {
	t.Parallel()
	own, other := netip.MustParseAddrPort("10.1.2.3:4000"), netip.MustParseAddrPort("10.1.2.5:4000")
	server := netip.MustParseAddrPort("10.1.2.4:80")
	ended, end := context.WithCancel(t.Context())
	end()
	host := lab.StartHost(t)
	lab.Check(t, host.AddAddresses("lo"))
	host.Within(t, func() error {
		lab.Check(t, CreateEntries(t.Context(), []Connection{{own, server, Open}, {other, server, Open}}))
		lab.Check(t, deleteStale(ended, []netip.Addr{own.Addr()}, true))
		entries, _, err := Entries(t.Context(), 10, func(Entry) bool { return true })
		if len(entries) != 1 || entries[0].Client != other {
			t.Errorf("entries %v, want only that of a forwarded connection", entries)
		}
		return err
	})
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
