// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

const echoPort = 9000

// forEachMode repairs a dual-stack pod that talks to a peer. prepare begins
// connections, and returns what has to hold after the repair.
func forEachMode(t *testing.T, prepare func(t *testing.T, p *pod) (after func(t *testing.T))) {
	t.Parallel()
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newNode()
			p := n.run(t, "web")
			n.dualStack(t, p, mode)
			p.serveAll(t)
			echo(t, p.host, echoPort, nil)
			echo(t, p.peer, echoPort, nil)
			after := prepare(t, p)
			n.newGuard(t, options{}).finds(t, report.Captured)
			after(t)
			for _, d := range directions {
				for _, ipv6 := range []bool{false, true} {
					_, server := d.tuple(ipv6, 0)
					answer, err := d.from(p).Ask(lab.Owner{UID: 1000, GID: 1000}, "tcp", "", server.String())
					if err != nil || answer.Server != d.want {
						t.Errorf("%s: a new connection to %s reaches %q, %v", d.name, server, answer.Server, err)
					}
				}
			}
			p.holdsWhatADDInstalls(t, n)
		})
	}
}

// holdsWhatADDInstalls compares the pod with the rules of a pod that was never repaired.
func (p *pod) holdsWhatADDInstalls(t *testing.T, n *node) {
	t.Helper()
	netns, rules := p.decided(t, n, config.DefaultSettings())
	defer netns.Close()
	found, err := netns.Observe(t.Context(), false)
	lab.Check(t, err)
	if differences, err := found.Differences(t.Context(), rules, config.NFTables); err != nil || len(differences) > 0 {
		t.Errorf("it differs from what an ADD installs: %q (%v)", differences, err)
	}
	if got, want := p.rules(t), (netfilter.State{Backend: config.NFTables, Stamp: rules.Stamp()}); got != want {
		t.Errorf("it holds %+v, want %+v", got, want)
	}
	if left := p.list(t); strings.Count(left, "table ") != 1 {
		t.Errorf("more than one table is left:\n%s", left)
	}
}

// hurry shortens all time-outs of the pod's conntrack but that of an
// established connection.
func (p *pod) hurry(t *testing.T) {
	t.Helper()
	p.host.Within(t, func() error {
		var errs []error
		for _, name := range []string{"unacknowledged", "max_retrans", "syn_sent", "syn_recv", "fin_wait", "close_wait", "last_ack", "time_wait", "close"} {
			errs = append(errs, os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_"+name, []byte("1"), 0))
		}
		return errors.Join(errs...)
	})
}

// outlive waits until conntrack has no entry of a connection that is younger than the
// test's, and has ended: its time-outs are as short.
func (p *pod) outlive(t *testing.T) {
	t.Helper()
	last, err := p.peer.Ask(lab.Owner{}, "tcp", "", appAddress)
	lab.Check(t, err)
	lab.Eventually(t, func() error {
		for _, entry := range p.entries(t) {
			if entry.Client == last.Client {
				return fmt.Errorf("conntrack has %+v", entry)
			}
		}
		return nil
	})
}

// TestEveryKindOfConnectionLivesOn repairs a pod with connections of all kinds,
// some of them idle for longer than all time-outs that can be shortened. Those
// that can't be waited for are read from conntrack: they are an open connection's.
func TestEveryKindOfConnectionLivesOn(t *testing.T) {
	forEachMode(t, func(t *testing.T, p *pod) func(*testing.T) {
		p.hurry(t)
		connections := map[string]net.Conn{}
		for _, kind := range []struct {
			name string
			from *lab.Host
			to   []string
		}{
			{"inbound", p.peer, []string{podAddress, podAddress6}},
			{"outbound", p.host, []string{peerAddress, peerAddress6}},
			{"within the pod", p.host, []string{"127.0.0.1", "127.0.0.2", "::1", podAddress, podAddress6}},
		} {
			for _, address := range kind.to {
				for _, use := range []string{"busy", "idle"} {
					conn := dial(t, kind.from, net.JoinHostPort(address, fmt.Sprint(echoPort)))
					lab.Check(t, works(conn))
					connections[kind.name+" to "+address+", "+use] = conn
				}
			}
		}
		return func(t *testing.T) {
			known := map[netip.AddrPort]kernel.Entry{}
			for _, entry := range p.entries(t) {
				known[entry.Client] = entry
			}
			for name, conn := range connections {
				entry, ok := known[conn.LocalAddr().(*net.TCPAddr).AddrPort()]
				if !ok || entry.Server != conn.RemoteAddr().(*net.TCPAddr).AddrPort() {
					t.Errorf("%s: conntrack has %+v from its client", name, entry)
				}
				if fiveDays := uint32(432000); entry.Timeout < fiveDays-60 || !entry.Assured || entry.Translated {
					t.Errorf("%s: conntrack has %+v", name, entry)
				}
				if strings.HasSuffix(name, "busy") {
					if err := works(conn); err != nil {
						t.Errorf("%s: it ended: %v", name, err)
					}
				}
			}
			p.outlive(t)
			for name, conn := range connections {
				if err := errors.Join(works(conn), works(conn)); err != nil {
					t.Errorf("%s: it ended: %v", name, err)
				}
			}
		}
	})
}

// entries are all that the pod's conntrack keeps of TCP.
func (p *pod) entries(t *testing.T) (entries []kernel.Entry) {
	t.Helper()
	p.host.Within(t, func() (err error) {
		entries, _, err = kernel.Entries(t.Context(), 1<<16, func(kernel.Entry) bool { return true })
		return err
	})
	return entries
}
