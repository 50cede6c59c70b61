// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestKeptEntries repairs a pod whose conntrack has entries without a socket: the pod's own
// are deleted, those of connections that it forwards are kept.
func TestKeptEntries(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	entries := map[kernel.Connection]bool{} // whether they are kept
	for _, tt := range []struct {
		client, server string
		kept           bool
	}{
		{podAddress, "203.0.113.1", false},
		{"203.0.113.1", podAddress, false},
		{"127.0.0.2", "127.0.0.3", false},
		{"198.51.100.1", "203.0.113.1", true},
		{"2001:db8:1::1", "2001:db8:2::1", true},
	} {
		entries[kernel.Connection{
			Client: netip.AddrPortFrom(netip.MustParseAddr(tt.client), 4000), Server: netip.AddrPortFrom(netip.MustParseAddr(tt.server), 80), Stage: kernel.Open,
		}] = tt.kept
	}
	p.host.Within(t, func() error {
		var all []kernel.Connection
		for c := range entries {
			all = append(all, c)
		}
		return kernel.CreateEntries(t.Context(), all)
	})
	p.nft(t, "flush", "chain", "inet", "capture-cni", "nat_OUTPUT")
	g := n.newGuard(t, options{})
	g.finds(t, report.Captured)
	left := p.entries(t)
	for c, kept := range entries {
		if got := slices.ContainsFunc(left, func(e kernel.Entry) bool { return e.Client == c.Client && e.Server == c.Server }); got != kept {
			t.Errorf("the entry from %s to %s is there: %v, want %v", c.Client, c.Server, got, kept)
		}
	}
}

// TestProxySpeaksFirst repairs a pod between two messages of its proxy: only the entry of
// the connection translates the second one.
func TestProxySpeaksFirst(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	listener := listen(t, p.host, inboundPort, nil)
	client := dial(t, p.peer, appAddress)
	server, err := listener.Accept()
	lab.Check(t, err)
	defer server.Close()
	p.nft(t, "flush", "chain", "inet", "capture-cni", "nat_OUTPUT")
	g := n.newGuard(t, options{})
	g.finds(t, report.Captured)
	_, err = server.Write([]byte{'.'})
	lab.Check(t, err)
	lab.Check(t, client.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Errorf("the client gets nothing from the proxy: %v", err)
	}
}

// TestFailedRepair has another program's route in the table of TPROXY: a repair fails, and
// leaves nothing behind.
func TestFailedRepair(t *testing.T) {
	t.Parallel()
	for _, route := range []string{"local 198.51.100.0/24 dev lo", "unicast default dev lo", "local default dev eth0"} {
		t.Run(route, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			n.dualStack(t, p, "TPROXY")
			p.execute(t, "ip", strings.Fields("route add "+route+" table 133")...)
			g := n.newGuard(t, options{})
			g.finds(t, report.Uncaptured)
			if left := p.list(t); left != "" {
				t.Errorf("it left\n%s", left)
			}
			p.execute(t, "ip", strings.Fields("route del "+route+" table 133")...)
			g = n.newGuard(t, options{})
			g.finds(t, report.Captured)
			p.holdsWhatADDInstalls(t, n)
		})
	}
}
