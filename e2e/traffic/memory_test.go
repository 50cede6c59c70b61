// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/conntrack"
)

// memory is what conntrack has of a connection that nat never translated, before the
// connection itself begins. nat decides once for each entry.
type memory struct {
	name     string
	families []family
	under    scenario // what the pod asks for
	port     uint16   // the server's, if not one of its own
	second   bool     // by net1
	leave    func(t *testing.T, w world, client, server netip.AddrPort)
}

// Families of a memory. A process can't make the others: IPv6 has no route to a server by
// lo, and the kernel sends IPv4 from no address that is not the host's own.
var (
	onlyFour     = []family{ipv4}
	onlySix      = []family{ipv6}
	bothFamilies = []family{ipv4, ipv6}
)

// modes are the values of a pod's annotation sidecar.istio.io/interceptionMode.
var modes = []string{"REDIRECT", "TPROXY"}

// What the pods of memories ask for.
var (
	excluding = scenario{name: "excluded interface", annotations: map[string]string{"excludeInterfaces": "net1"}}
	rerouting = scenario{name: "rerouted interface", annotations: map[string]string{"istio.io/reroute-virtual-interfaces": "net1"}}
	resolving = scenario{name: "DNS", env: captureDNS}
	grouping  = scenario{name: "excluded group", settings: func(s *config.Settings) { s.Mesh.OutboundOwnerGroupsExclude = []uint32{5} }}
)

// forEachMemory tests each memory with addresses and ports of its own, by each backend, mode
// and family.
func forEachMemory(t *testing.T, memories []memory, test func(t *testing.T, w world, m memory, f family)) {
	t.Helper()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			worlds := map[string]world{}
			for i, m := range memories {
				w, ok := worlds[m.under.name]
				if !ok {
					w = m.under.world(t, backend, mode)
					worlds[m.under.name] = w
				}
				m.port = cmp.Or(m.port, uint16(9000+i))
				t.Run(mode+", "+m.name, func(t *testing.T) {
					for _, f := range m.families {
						test(t, w, m, f)
					}
				})
			}
		}
	})
}

// world makes a pod that asks for a scenario, and its peer.
func (s scenario) world(t *testing.T, backend config.Backend, mode string) world {
	t.Helper()
	settings := dualStack()
	if s.settings != nil {
		s.settings(&settings)
	}
	pod := injected(spelled(s.annotations), s.env)
	pod.Annotations["sidecar.istio.io/interceptionMode"] = mode
	w := newWorld(t, []int{8080}, settings.Mesh)
	w.addSecondRoutes(t)
	check(t, open(t, w.pod, backend).Apply(decide(t, pod, settings)))
	return w
}

// ends returns an address of the pod and one of the peer, on the same link.
func (m memory) ends(f family) (pod, peer netip.Addr) {
	if m.second {
		return netip.MustParseAddr(secondIP[f]), netip.MustParseAddr(secondPeer[f])
	}
	return netip.MustParseAddr(podIP[f]), netip.MustParseAddr(external[f])
}

// addSecondRoutes lets the hosts reach each other over net1, too, if a socket is bound to it.
func (w world) addSecondRoutes(t *testing.T) {
	t.Helper()
	run("ip", "route", "add", "default", "via", secondPeer[ipv4], "dev", "net1", "metric", "4096")(t, w.pod)
	run("ip", "-6", "route", "add", "default", "via", secondPeer[ipv6], "dev", "net1", "metric", "4096")(t, w.pod)
	run("ip", "route", "add", "10.77.0.0/24", "via", secondIP[ipv4], "dev", "net1", "metric", "4096")(t, w.peer)
	run("ip", "-6", "route", "add", "fd77::/64", "via", secondIP[ipv6], "dev", "net1", "metric", "4096")(t, w.peer)
	for _, f := range bothFamilies {
		w.probe(t, in(secondIP, 8080, direct), f) // the first packet would wait for the neighbour's address
	}
}

// patience is how long a test waits for an answer that must not come.
const patience = 500 * time.Millisecond

// ask makes a TCP connection that ends by a reset.
func ask(t *testing.T, host *lab.Host, c lab.Connection) lab.Reply {
	t.Helper()
	c.Network = "tcp"
	replies, err := host.AskAll([]lab.Connection{c})
	check(t, err)
	return replies[0]
}

// begin sends a SYN that is not answered.
func begin(t *testing.T, host *lab.Host, c lab.Connection) {
	t.Helper()
	socket, err := host.Begin(c)
	check(t, err)
	check(t, socket.Close())
}

// segmentOf has the server send a segment that the pod drops silently.
func segmentOf(flags byte) func(*testing.T, world, netip.AddrPort, netip.AddrPort) {
	return func(t *testing.T, w world, client, server netip.AddrPort) {
		t.Helper()
		check(t, w.peer.Inject(lab.Segment{From: server, To: client, Flags: flags, Signed: true}))
		w.waitForEntry(t, server)
	}
}

// leftOnLo has the application send the SYN by a device that does not lead to the server.
func leftOnLo(t *testing.T, w world, client, server netip.AddrPort) {
	t.Helper()
	begin(t, w.pod, lab.Connection{Owner: app, Device: "lo", From: client, To: server})
}

// leftOnLoByServer is the same in the other direction, by the application as the server.
func leftOnLoByServer(t *testing.T, w world, client, server netip.AddrPort) {
	t.Helper()
	leftOnLo(t, w, server, client)
}

// untracked has another program's rules keep a server's connections from conntrack.
func untracked(t *testing.T, w world, _, server netip.AddrPort) {
	t.Helper()
	nft(t, w.pod, fmt.Sprintf(`table inet untracked {
		chain prerouting { type filter hook prerouting priority raw; tcp dport %[1]d notrack; }
		chain output { type filter hook output priority raw; tcp dport %[1]d notrack; tcp sport %[1]d notrack; }
	}`, server.Port()))
}

// TestNoWayOut: whatever conntrack has of it, a connection of the application never
// leaves the pod but through the proxy; one of the proxy does.
func TestNoWayOut(t *testing.T) {
	memories := []memory{
		{name: "a SYN that died on lo", families: onlyFour, leave: leftOnLo},
		{name: "a SYN by an excluded interface", families: bothFamilies, under: excluding, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
			drop := silence(t, w.peer, `iifname "net1"`)
			begin(t, w.pod, lab.Connection{Owner: app, Device: "net1", From: client, To: server})
			drop()
		}},
		{name: "a SYN of the proxy", families: bothFamilies, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
			drop := silence(t, w.peer, "tcp flags syn")
			begin(t, w.pod, lab.Connection{Owner: proxy, From: client, To: server})
			drop()
		}},
		{name: "a SYN of an excluded group", families: bothFamilies, under: grouping, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
			drop := silence(t, w.peer, "tcp flags syn")
			begin(t, w.pod, lab.Connection{Owner: lab.Owner{UID: 1000, GID: 5}, From: client, To: server})
			drop()
		}},
		{name: "a SYN of a DNS server", families: bothFamilies, under: resolving, port: 53, leave: segmentOf(lab.SYN)},
		{name: "a SYN of the server", families: bothFamilies, leave: segmentOf(lab.SYN)},
		{name: "an ACK of the server", families: bothFamilies, leave: segmentOf(lab.ACK)},
		{name: "a SYN forged in the server's name", families: onlySix, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
			listener, err := w.pod.ListenSilently(client.String())
			check(t, err)
			begin(t, w.pod, lab.Connection{Owner: app, FreeBind: true, From: server, To: client})
			check(t, lab.StopListening(listener))
		}},
		{name: "nothing, by notrack", families: bothFamilies, leave: untracked},
	}
	// Inbound, these ports are not captured.
	const appPort, proxyPort = 15008, 15021
	forEachMemory(t, memories, func(t *testing.T, w world, m memory, f family) {
		pod, peer := m.ends(f)
		server := netip.AddrPortFrom(peer, m.port)
		answering, err := w.peer.Serve("tcp", server.String(), direct)
		check(t, err)
		defer answering.Close()
		for _, by := range []struct {
			lab.Owner
			port uint16
		}{{app, appPort}, {proxy, proxyPort}} {
			client := netip.AddrPortFrom(pod, by.port)
			m.leave(t, w, client, server)
			limit := patience
			if by.Owner == proxy {
				limit = 0
			}
			got := ask(t, w.pod, lab.Connection{Owner: by.Owner, From: client, To: server, Limit: limit})
			if (got.Answer.Server == direct) != (by.Owner == proxy) {
				t.Errorf("%v, uid %d: after %s, %q answers (%v)", f, by.UID, m.name, got.Answer.Server, got.Err)
			}
		}
	})
}

// TestNoWayIn: whatever conntrack has of it, a client's connection never reaches the
// application but through the proxy.
func TestNoWayIn(t *testing.T) {
	memories := []memory{
		{name: "a SYN of the application that died on lo", families: onlyFour, leave: leftOnLoByServer},
		{name: "a SYN to a rerouted interface that died on lo", families: onlyFour, under: rerouting, second: true, leave: leftOnLoByServer},
		{name: "a SYN on a rerouted interface, by notrack", families: bothFamilies, under: rerouting, second: true, leave: untracked},
		{name: "a SYN by an excluded interface", families: bothFamilies, under: excluding, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
			listener, err := w.pod.ListenSilently(server.String())
			check(t, err)
			begin(t, w.peer, lab.Connection{Device: "net1", From: client, To: server})
			w.waitForEntry(t, client)
			check(t, lab.StopListening(listener))
		}},
		{name: "nothing, by notrack", families: bothFamilies, leave: untracked},
	}
	forEachMemory(t, memories, func(t *testing.T, w world, m memory, f family) {
		pod, peer := m.ends(f)
		client, server := netip.AddrPortFrom(peer, 20000), netip.AddrPortFrom(pod, m.port)
		m.leave(t, w, client, server)
		application, err := w.pod.Serve("tcp", server.String(), direct)
		check(t, err)
		if got := ask(t, w.peer, lab.Connection{From: client, To: server, Limit: patience}); got.Answer.Server == direct {
			t.Errorf("%v: after %s, the client reaches the application", f, m.name)
		}
		check(t, application.Close())
	})
}

// TestNoSimultaneousOpen: a process has the kernel answer a SYN that it forged in the
// server's name. The SYN-ACK would leave past nat and, with a server that plays along, open a
// connection. The process ignores resets.
func TestNoSimultaneousOpen(t *testing.T) {
	forge := func(t *testing.T, w world, client, server netip.AddrPort) {
		begin(t, w.pod, lab.Connection{Owner: app, FreeBind: true, From: server, To: client})
	}
	var memories []memory
	for _, device := range []string{"", "eth0"} {
		memories = append(memories, memory{name: "a connection by the device " + device, families: onlySix, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
			listener, err := w.pod.ListenSilently(client.String())
			check(t, err)
			forge(t, w, client, server)
			check(t, lab.StopListening(listener))
			socket, err := w.pod.Begin(lab.Connection{Owner: app, Device: device, IgnoreResets: true, From: client, To: server})
			check(t, err)
			forge(t, w, client, server)
			check(t, socket.Close())
		}})
	}
	memories = append(memories, memory{name: "a connection that the proxy hands on", families: onlySix, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
		socket, err := w.pod.Begin(lab.Connection{Owner: app, Device: "eth0", IgnoreResets: true, From: client, To: server})
		check(t, err)
		check(t, w.pod.Do(func() error { return conntrack.Flush(t.Context()) })) // as if its time was over
		_ = ask(t, w.pod, lab.Connection{Owner: proxy, Mark: lab.ProxyMark, FreeBind: true, From: server, To: client, Limit: patience})
		check(t, socket.Close())
	}})
	forEachMemory(t, memories, func(t *testing.T, w world, m memory, f family) {
		pod, peer := m.ends(f)
		client, server := netip.AddrPortFrom(pod, 20000), netip.AddrPortFrom(peer, m.port)
		nft(t, w.peer, "table inet silence { counter answers { }; chain prerouting { type filter hook prerouting priority raw; "+
			"tcp dport != 8080 tcp flags & (syn | ack) == (syn | ack) counter name answers; tcp dport != 8080 drop; }; }")
		defer nft(t, w.peer, "delete table inet silence")
		w.probe(t, out(proxy, external, 8080, direct), f) // the pod knows its neighbour
		m.leave(t, w, client, server)
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if got := counted(t, w.peer, "answers"); got != "0" {
				t.Errorf("%v: %s SYN-ACKs leave the pod for the server", f, got)
				break
			}
		}
	})
}

// silence has a host drop the packets that match, until the returned function is called.
func silence(t *testing.T, host *lab.Host, match string) (end func()) {
	t.Helper()
	nft(t, host, "table inet silence { chain prerouting { type filter hook prerouting priority raw; "+match+" drop; }; }")
	return func() {
		t.Helper()
		nft(t, host, "delete table inet silence")
	}
}

// waitForEntry waits until the pod's conntrack has an entry that a client began.
func (w world) waitForEntry(t *testing.T, client netip.AddrPort) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(time.Millisecond) {
		var found []conntrack.Entry
		check(t, w.pod.Do(func() (err error) {
			found, _, err = conntrack.Entries(t.Context(), 1, func(e conntrack.Entry) bool { return e.Client == client })
			return err
		}))
		if len(found) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("conntrack has nothing from %s", client)
		}
	}
}

// counted returns the packets of a named counter in table inet silence.
func counted(t *testing.T, host *lab.Host, name string) string {
	t.Helper()
	var out []byte
	check(t, host.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "nft", "list", "counter", "inet", "silence", name).Output()
		return err
	}))
	return regexp.MustCompile(`packets (\d+)`).FindStringSubmatch(string(out))[1]
}
