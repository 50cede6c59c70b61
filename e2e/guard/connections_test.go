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
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/conntrack"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// listenEcho answers each byte at a port of a host, as an application does.
func listenEcho(t *testing.T, host *lab.Host, port int) {
	t.Helper()
	var listener net.Listener
	lab.Check(t, host.Do(func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	}))
	t.Cleanup(func() { _ = listener.Close() })
	go echoAll(listener)
}

func dialFrom(t *testing.T, host *lab.Host, to string) *net.TCPConn {
	t.Helper()
	var conn net.Conn
	lab.Check(t, host.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", to, 10*time.Second)
		return err
	}))
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

const echoPort = 9000

// forEachMode repairs a dual-stack pod that talks to a peer. prepare begins
// connections, and returns what has to hold after the repair.
func forEachMode(t *testing.T, prepare func(t *testing.T, p *pod) (after func(t *testing.T))) {
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			n.dualStack(t, p, mode)
			p.serveAll(t)
			listenEcho(t, p.host, echoPort)
			listenEcho(t, p.peer, echoPort)
			after := prepare(t, p)
			keeper, registry := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{terms.Captured: 1})
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
	netns, err := podnet.Open(t.Context(), p.sandbox.NetNS)
	lab.Check(t, err)
	defer netns.Close()
	addresses, err := netns.Addresses()
	lab.Check(t, err)
	decision, err := lab.Decide(n.pods[p.sandbox.ID], config.DefaultSettings(), addresses...)
	lab.Check(t, err)
	rules := capture.Rules(decision.Intent)
	if differences, err := netns.Check(t.Context(), rules, config.NFTables); err != nil || len(differences) > 0 {
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
	lab.Check(t, p.host.Do(func() error {
		var errs []error
		for _, name := range []string{"unacknowledged", "max_retrans", "syn_sent", "syn_recv", "fin_wait", "close_wait", "last_ack", "time_wait", "close"} {
			errs = append(errs, os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_"+name, []byte("1"), 0))
		}
		return errors.Join(errs...)
	}))
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
					conn := dialFrom(t, kind.from, net.JoinHostPort(address, fmt.Sprint(echoPort)))
					lab.Check(t, works(conn))
					connections[kind.name+" to "+address+", "+use] = conn
				}
			}
		}
		return func(t *testing.T) {
			known := map[netip.AddrPort]conntrack.Entry{}
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
			time.Sleep(2500 * time.Millisecond) // more than twice the shortened time-outs
			for name, conn := range connections {
				if err := errors.Join(works(conn), works(conn)); err != nil {
					t.Errorf("%s: it ended: %v", name, err)
				}
			}
		}
	})
}

// entries are all that the pod's conntrack keeps of TCP.
func (p *pod) entries(t *testing.T) (entries []conntrack.Entry) {
	t.Helper()
	lab.Check(t, p.host.Do(func() (err error) {
		entries, _, err = conntrack.Entries(t.Context(), 1<<16, func(conntrack.Entry) bool { return true })
		return err
	}))
	return entries
}
