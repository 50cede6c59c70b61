// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
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

// forEachMemory tests each memory by each backend, mode and family.
func forEachMemory(t *testing.T, memories []memory, test func(t *testing.T, w world, m memory, f family)) {
	t.Helper()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			inWorlds(t, mode, memories, test, func(s scenario) world {
				pod, settings := s.podForIstio("true"), dualStack()
				s.set(&settings)
				w := newSecondWorld(t, settings.Mesh)
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, pod, settings)))
				return w
			})
		}
	})
}

// inWorlds tests each memory with addresses and ports of its own, in a world of its scenario
// in a mode.
func inWorlds(t *testing.T, mode string, memories []memory, test func(t *testing.T, w world, m memory, f family), newWorld func(s scenario) world) {
	t.Helper()
	worlds := map[string]world{}
	for i, m := range memories {
		w, ok := worlds[m.under.name]
		if !ok {
			w = newWorld(m.under.in(mode))
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

// in returns a scenario in a mode.
func (s scenario) in(mode string) scenario {
	annotations := map[string]string{"sidecar.istio.io/interceptionMode": mode}
	maps.Copy(annotations, s.annotations)
	s.annotations = annotations
	return s
}

// set changes the settings as a scenario wants.
func (s scenario) set(settings *config.Settings) {
	if s.settings != nil {
		s.settings(settings)
	}
}

// newSecondWorld makes a world whose hosts reach each other over net1, too, if a socket is bound to it.
func newSecondWorld(t *testing.T, mesh config.Mesh) world {
	t.Helper()
	w := newWorld(t, []int{8080}, mesh)
	run("ip", "route", "add", "default", "via", secondPeer[ipv4], "dev", "net1", "metric", "4096")(t, w.pod)
	run("ip", "-6", "route", "add", "default", "via", secondPeer[ipv6], "dev", "net1", "metric", "4096")(t, w.pod)
	run("ip", "route", "add", "10.77.0.0/24", "via", secondIP[ipv4], "dev", "net1", "metric", "4096")(t, w.peer)
	run("ip", "-6", "route", "add", "fd77::/64", "via", secondIP[ipv6], "dev", "net1", "metric", "4096")(t, w.peer)
	w.probeAll(t, in(secondIP, 8080, direct))
	return w
}

// ends returns an address of the pod and one of the peer, on the same link.
func (m memory) ends(f family) (pod, peer netip.Addr) {
	if m.second {
		return netip.MustParseAddr(secondIP[f]), netip.MustParseAddr(secondPeer[f])
	}
	return netip.MustParseAddr(podIP[f]), netip.MustParseAddr(external[f])
}

// ask makes a TCP connection that ends by a reset.
func ask(t *testing.T, host *lab.Host, c lab.Connection) lab.Reply {
	t.Helper()
	c.Network = "tcp"
	replies, err := host.AskAll([]lab.Connection{c})
	lab.Check(t, err)
	return replies[0]
}

// begin sends a SYN that is not answered.
func begin(t *testing.T, host *lab.Host, c lab.Connection) {
	t.Helper()
	socket, err := host.Begin(c)
	lab.Check(t, err)
	lab.Check(t, socket.Close())
}

// segmentOf has the server send a segment that the pod drops silently.
func segmentOf(flags byte) func(*testing.T, world, netip.AddrPort, netip.AddrPort) {
	return func(t *testing.T, w world, client, server netip.AddrPort) {
		t.Helper()
		lab.Check(t, w.peer.Inject(lab.Segment{From: server, To: client, Flags: flags, Signed: true}))
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
	w.pod.Load(t, fmt.Sprintf(`table inet untracked {
		chain prerouting { type filter hook prerouting priority raw; tcp dport %[1]d notrack; }
		chain output { type filter hook output priority raw; tcp dport %[1]d notrack; tcp sport %[1]d notrack; }
	}`, server.Port()))
}

// silence has a host drop the packets that match, until the returned function is called.
func silence(t *testing.T, host *lab.Host, match string) (end func()) {
	t.Helper()
	host.Load(t, "table inet silence { chain prerouting { type filter hook prerouting priority raw; "+match+" drop; }; }")
	return func() {
		t.Helper()
		host.Load(t, "delete table inet silence")
	}
}

// waitForEntry waits until the pod's conntrack has an entry that a client began.
func (w world) waitForEntry(t *testing.T, client netip.AddrPort) {
	t.Helper()
	lab.Eventually(t, func() error {
		return w.pod.Do(func() error {
			found, _, err := kernel.Entries(t.Context(), 1, func(e kernel.Entry) bool { return e.Client == client })
			if err == nil && len(found) == 0 {
				err = fmt.Errorf("conntrack has nothing from %s", client)
			}
			return err
		})
	})
}

// arrives reports whether the peer gets a packet that matches. It answers none.
func (w world) arrives(t *testing.T, match string, send func()) bool {
	t.Helper()
	w.peer.Load(t, "table inet arrivals { counter arrived { }; chain prerouting { type filter hook prerouting priority raw; "+
		match+" counter name arrived; tcp dport != 8080 drop; }; }")
	defer w.peer.Load(t, "delete table inet arrivals")
	send()
	for _, f := range bothFamilies {
		passed(t, w.pod, netip.MustParseAddr(external[f]))
	}
	var out []byte
	lab.Check(t, w.peer.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "nft", "list", "counter", "inet", "arrivals", "arrived").Output()
		return err
	}))
	return !strings.Contains(string(out), "packets 0")
}
