// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Source ports of connections whose SYN is lost once, before conntrack has an entry of an
// inbound one, and of those whose SYN is answered only when it arrives again.
const (
	firstLost     = 20000
	firstRepeated = 30000
)

// repeating has each host drop what these ports lose.
const repeating = `table inet repeating {
	set once {
		type inet_service
		size 65535
		flags dynamic
	}
	set twice {
		type inet_service
		size 65535
		flags dynamic
	}
	chain input {
		type filter hook input priority 0
		tcp flags & (syn | ack) == syn tcp sport 30000-39999 tcp sport @once add @twice { tcp sport }
		tcp flags & (syn | ack) == syn tcp sport 20000-29999 tcp sport != @once add @once { tcp sport } drop
		tcp flags & (syn | ack) == syn tcp sport 30000-39999 add @once { tcp sport }
	}
	chain output {
		type filter hook output priority 0
		tcp flags & (syn | ack) == (syn | ack) tcp dport 30000-39999 tcp dport != @twice drop
	}
}`

// repeated are scenarios with each kind of exemption.
var repeated = []string{
	"defaults", "inbound list", "excluded outbound ports replace the default", "excluded ranges", "excluded interfaces", "rerouted interface",
	"only some groups", "a loopback range lifts the loopback exemption", "DNS",
	"TPROXY, defaults", "TPROXY, inbound list", "TPROXY, excluded interfaces", "TPROXY, a loopback range", "DNS, TPROXY",
}

// TestRepeatedSYNs makes each connection of a scenario four times, from the same port: with a
// handshake of two SYNs, after an end in order, once more, and after a reset.
func TestRepeatedSYNs(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for names := range slices.Chunk(repeated, 2) { // each handshake takes a second: the kernel's first time-out is fixed
			var all sync.WaitGroup
			for _, name := range names {
				s := scenarios[slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })]
				settings := dualStack()
				s.set(&settings)
				w := newWorld(t, ports(s.probes), settings.Mesh)
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, s.injected(), settings)))
				w.pod.Load(t, repeating)
				w.peer.Load(t, repeating)
				for i, p := range s.probes {
					for _, f := range bothFamilies {
						if p.udp || p.to[f] == "" {
							continue
						}
						for _, first := range lost(t) {
							all.Go(func() { w.repeat(t, name, p, f, uint16(first+2*i+int(f))) })
						}
					}
				}
			}
			all.Wait()
		}
	})
}

// lost returns the first ports of both kinds. On Linux 5.10 and 6.1, a connection is reset after its SYN-ACK
// was lost also if only nft redirects it, so there such ports are left out.
func lost(t *testing.T) []int {
	t.Helper()
	var name unix.Utsname
	lab.Check(t, unix.Uname(&name))
	if release := unix.ByteSliceToString(name.Release[:]); strings.HasPrefix(release, "5.") || strings.HasPrefix(release, "6.1.") {
		return []int{firstLost}
	}
	return []int{firstLost, firstRepeated}
}

// repeat connects from one port again and again.
func (w world) repeat(t *testing.T, scenario string, p probe, f family, port uint16) {
	from := map[family]netip.Addr{ipv4: netip.IPv4Unspecified(), ipv6: netip.IPv6Unspecified()}[f]
	if p.from[f] != "" {
		from = netip.MustParseAddr(p.from[f])
	}
	c := lab.Connection{
		Owner: p.by, Network: "tcp", From: netip.AddrPortFrom(from, port),
		To: netip.AddrPortFrom(netip.MustParseAddr(p.to[f]), uint16(p.port)), Close: true, Limit: 20 * time.Second,
	}
	reset := c
	reset.Close = false
	replies, err := w.from(p).AskAll([]lab.Connection{c, c, reset, reset})
	if err != nil {
		t.Error(err)
	}
	for i, got := range replies {
		if got.Answer.Server != p.want {
			t.Errorf("%s: %v %+v from port %d, connection %d: answered by %q (%v)", scenario, f, p, port, i, got.Answer.Server, got.Err)
		}
	}
}

// TestFullBacklog: a SYN that the server has no room for is sent again, and then accepted.
func TestFullBacklog(t *testing.T) {
	t.Parallel()
	const room = 4
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			t.Run(mode, func(t *testing.T) {
				w := newLinks(t)
				w.pod.Wait, w.peer.Wait = lab.Patience, lab.Patience // the kernel sends SYNs again after 1, 3 and 7 seconds
				configure(t, w.pod, "core/somaxconn", strconv.Itoa(room))
				configure(t, w.peer, "core/somaxconn", strconv.Itoa(room))
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, withoutNet1(mode), dualStack())))
				servers := map[string]*server{
					inbound: listen(t, w.pod, proxy, 15006), outbound: listen(t, w.pod, proxy, 15001),
					"exempt": listen(t, w.peer, rootUser, 15020), "the proxy's": listen(t, w.peer, rootUser, 80),
					"exempt, inbound": listen(t, w.pod, rootUser, 15021), "by net1": listen(t, w.peer, rootUser, 81), "by net1, inbound": listen(t, w.pod, rootUser, 8081),
				}
				var probes sync.WaitGroup
				for name, p := range map[string]probe{
					inbound: in(podIP, 8080, ""), outbound: out(app, external, 80, ""),
					"exempt": out(app, external, 15020, ""), "the proxy's": out(proxy, external, 80, ""),
					"exempt, inbound": in(podIP, 15021, ""), "by net1": out(app, secondPeer, 81, ""), "by net1, inbound": in(secondIP, 8081, ""),
				} {
					for range room + 1 {
						filling, err := w.from(p).Dial(p.by, "", fmt.Sprintf("%s:%d", p.to[ipv4], p.port))
						lab.Check(t, err)
						t.Cleanup(func() { _ = filling.Close() })
					}
					for _, f := range bothFamilies {
						probes.Go(func() {
							if _, _, err := w.ask(p, f); err != nil {
								t.Errorf("%v, %s: %v", f, name, err)
							}
						})
					}
				}
				lab.Eventually(t, func() error { // the first SYNs are dropped
					if dropped := overflows(t, w.pod) + overflows(t, w.peer); dropped < 2*len(servers) {
						return fmt.Errorf("the backlogs had no room for %d SYNs, want %d", dropped, 2*len(servers))
					}
					return nil
				})
				for name, s := range servers {
					s.serve(name)
				}
				probes.Wait()
			})
		}
	})
}

// overflows returns how many SYNs the host dropped because a backlog was full.
func overflows(t *testing.T, host *lab.Host) (count int) {
	t.Helper()
	lab.Check(t, host.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		lines := strings.Split(string(text), "\n") // a line of names, and one of values
		if at := slices.Index(strings.Fields(lines[0]), "ListenOverflows"); at > 0 {
			count, _ = strconv.Atoi(strings.Fields(lines[1])[at])
		}
		return err
	}))
	return count
}

// TestRefusals: an answer that a port is closed arrives, and does not stand in the way of a
// later connection from the same port.
func TestRefusals(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			for _, excluded := range []string{"15020", "9000"} {
				t.Run(mode+", excluded port "+excluded, func(t *testing.T) {
					w := newLinks(t)
					pod := injected(spelled(map[string]string{"excludeOutboundPorts": excluded}), nil)
					pod.Annotations["sidecar.istio.io/interceptionMode"] = mode
					lab.Check(t, open(t, w.pod, backend).Apply(decide(t, pod, dualStack())))
					exempt := netip.MustParseAddrPort("0.0.0.0:" + excluded).Port()
					type row struct {
						by   lab.Owner
						to   dst
						port uint16
						want string
					}
					rows := []row{
						{app, external, 80, outbound},
						{proxy, external, 80, direct},
						{app, external, exempt, direct},
						{app, localhost, 8080, direct},
						{app, podIP, 8080, direct},
						{proxy, localhost, 8080, direct},
					}
					connect := func(i int, r row, f family) lab.Reply {
						from := netip.AddrPortFrom(map[family]netip.Addr{ipv4: netip.IPv4Unspecified(), ipv6: netip.IPv6Unspecified()}[f], uint16(20000+i))
						return ask(t, w.pod, lab.Connection{Owner: r.by, From: from, To: netip.AddrPortFrom(netip.MustParseAddr(r.to[f]), r.port)})
					}
					for i, r := range rows {
						for _, f := range bothFamilies {
							if got := connect(i, r, f); !got.Refused() {
								t.Errorf("%v %+v: %v, want a refusal", f, r, got.Err)
							}
						}
					}
					w.sidecar(t, proxy, istioMesh)
					for _, port := range []int{80, int(exempt)} {
						w.serve(t, w.peer, "tcp", port, direct)
					}
					w.serve(t, w.pod, "tcp", 8080, direct)
					for i, r := range rows {
						for _, f := range bothFamilies {
							if got := connect(i, r, f); got.Answer.Server != r.want {
								t.Errorf("%v %+v: answered by %q (%v)", f, r, got.Answer.Server, got.Err)
							}
						}
					}
				})
			}
		}
	})
}
