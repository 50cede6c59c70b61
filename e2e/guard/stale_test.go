// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
)

var (
	staleClient = netip.AddrPortFrom(netip.MustParseAddr(podAddress), 4000)
	staleServer = netip.AddrPortFrom(netip.MustParseAddr(peerAddress), outsidePort)
)

// leaveStale leaves an entry without a socket and without a translation, as a
// connection leaves it that ended while the pod had no rules.
func (p *pod) leaveStale(t *testing.T) {
	t.Helper()
	p.host.Within(t, func() error {
		return kernel.CreateEntries(t.Context(), []kernel.Connection{{Client: staleClient, Server: staleServer, Stage: kernel.Open}})
	})
}

func (p *pod) hasStale(t *testing.T) bool {
	t.Helper()
	return slices.ContainsFunc(p.entries(t), func(e kernel.Entry) bool { return e.Client == staleClient && e.Server == staleServer })
}

// TestRefused has rules that refuse connections: the guard deletes stale entries after
// each refusal, and no others, unless it changes nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	for policy, changes := range map[guard.Policy]bool{guard.InPlace: true, guard.Evict: true, guard.ReportOnly: false} {
		t.Run(string(policy), func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			p.capture(t, nil)
			forgeStamp(t, p, "capture-cni rules v99 ipv4,ipv6=refused 00112233445566778899aabbccddeeff")
			p.nft(t, "add", "chain", "inet", "capture-cni", "filter_ISTIO_REFUSE")
			p.nft(t, "add", "rule", "inet", "capture-cni", "filter_ISTIO_REFUSE", "limit", "rate", "1000000/second", "counter", "reject", "with", "tcp", "reset")
			p.nft(t, "add", "chain", "inet", "capture-cni", "filter_OUTPUT", "{ type filter hook output priority 0; }")
			p.nft(t, "add", "rule", "inet", "capture-cni", "filter_OUTPUT", "tcp dport 81 ct state new jump filter_ISTIO_REFUSE")
			echo(t, p.peer, echoPort, nil)
			live := dial(t, p.host, fmt.Sprintf("%s:%d", peerAddress, echoPort))
			g := n.newGuard(t, options{policy: policy})
			for range 2 {
				p.leaveStale(t)
				g.round(t)
				if !p.hasStale(t) {
					t.Error("without a refusal, an entry was deleted")
				}
				if _, err := p.host.Ask(lab.Owner{UID: 1000, GID: 1000}, "tcp", "", peerAddress+":81"); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("the rules do not refuse: %v", err)
				}
				g.round(t)
				if p.hasStale(t) == changes {
					t.Errorf("after a refusal, the entry is there: %v", !changes)
				}
			}
			g.expect(t, report.Outdated)
			if local := live.LocalAddr().String(); !slices.ContainsFunc(p.entries(t), func(e kernel.Entry) bool { return e.Client.String() == local }) {
				t.Error("the entry of an open connection was deleted")
			}
			lab.Check(t, works(live))
			out := g.explain(t, "web")
			if want := "kernel       refused packets: 2\n"; !strings.Contains(out, want) {
				t.Errorf("the explanation lacks %q:\n%s", want, out)
			}
		})
	}
}

// TestRefusedPortWorksAgain has an application with a fixed port, to which an entry from
// before the rules belongs: the rules refuse its first attempt, and capture the next.
func TestRefusedPortWorksAgain(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	p.serveAll(t)
	g := n.newGuard(t, options{})
	g.round(t)
	p.leaveStale(t)
	ask := func() (lab.Answer, error) {
		return p.host.Ask(lab.Owner{UID: 1000, GID: 1000}, "tcp", staleClient.String(), staleServer.String())
	}
	if _, err := ask(); !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatalf("the first attempt: %v", err)
	}
	g.round(t)
	if answer, err := ask(); err != nil || answer.Server != outboundProxy {
		t.Errorf("the next attempt reaches %q, %v", answer.Server, err)
	}
}

// TestFencedPortWorksAgain has a client with a fixed port, to which an entry from before the rules of
// a fenced pod belongs: the fence drops its first attempt, and the next is captured.
func TestFencedPortWorksAgain(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	n.fence(p)
	p.addBy(t, n, config.NFTables, config.DefaultSettings())
	p.serveAll(t)
	g := n.newGuard(t, options{})
	g.round(t)
	client, server := netip.AddrPortFrom(netip.MustParseAddr(peerAddress), 4000), netip.AddrPortFrom(netip.MustParseAddr(podAddress), appPort)
	p.host.Within(t, func() error {
		return kernel.CreateEntries(t.Context(), []kernel.Connection{{Client: client, Server: server, Stage: kernel.Open}})
	})
	ask := func(limit time.Duration) lab.Reply {
		replies, err := p.peer.AskAll([]lab.Connection{{Network: "tcp", From: client, To: server, Limit: limit}})
		lab.Check(t, err)
		return replies[0]
	}
	if first := ask(time.Second); first.Err == nil {
		t.Fatalf("the first attempt reaches %q", first.Answer.Server)
	}
	g.round(t)
	if next := ask(lab.Patience); next.Err != nil || next.Answer.Server != inboundProxy {
		t.Errorf("the next attempt reaches %q, %v", next.Answer.Server, next.Err)
	}
}
