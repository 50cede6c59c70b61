// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestInvalidDrop sends a packet that belongs to no connection: an
// acknowledgement of a SYN that was never sent. It is answered with a reset,
// unless INVALID_DROP is set.
func TestInvalidDrop(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, drop := range []bool{false, true} {
			t.Run("INVALID_DROP="+strconv.FormatBool(drop), func(t *testing.T) {
				w := newWorld(t, []int{80, 8080}, istioMesh)
				env := map[string]string{"INVALID_DROP": strconv.FormatBool(drop)}
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, env), config.DefaultSettings())))
				if answered := sendStraySYNACK(t, w.peer, external, podIP); answered == drop {
					t.Errorf("the stray packet was answered with a reset: %v", answered)
				}
				w.probe(t, in(podIP, 8080, inbound), ipv4)
			})
		}
	})
}

// TestInvalidDropOnExcludedInterface sends the same packet over an interface that
// is excluded, and so left alone in this, too.
func TestInvalidDropOnExcludedInterface(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range []string{"REDIRECT", "TPROXY"} {
			t.Run(mode, func(t *testing.T) {
				w := newWorld(t, []int{80, 8080}, istioMesh)
				pod := injected(map[string]string{
					"sidecar.istio.io/interceptionMode": mode, "traffic.sidecar.istio.io/excludeInterfaces": "net1",
				}, map[string]string{"INVALID_DROP": "true"})
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, pod, config.DefaultSettings())))
				if !sendStraySYNACK(t, w.peer, secondPeer, secondIP) {
					t.Error("the stray packet is dropped on the excluded interface")
				}
				if sendStraySYNACK(t, w.peer, external, podIP) {
					t.Error("the stray packet is answered with a reset on another interface")
				}
				w.probe(t, in(secondIP, 8080, direct), ipv4)
				w.probe(t, in(podIP, 8080, inbound), ipv4)
			})
		}
	})
}

// TestEcho makes sure that ICMP passes: rules are for TCP.
func TestEcho(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newLinks(t)
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, nil), dualStack())))
		for _, f := range bothFamilies {
			passed(t, w.pod, netip.MustParseAddr(external[f]))
			passed(t, w.peer, netip.MustParseAddr(podIP[f]))
		}
	})
}

// sendStraySYNACK sends a segment that acknowledges nothing, and reports whether the pod
// answers with a reset.
func sendStraySYNACK(t *testing.T, peer *lab.Host, from, to dst) (answered bool) {
	t.Helper()
	pod := netip.MustParseAddr(to[ipv4])
	stray := lab.Segment{From: netip.AddrPortFrom(netip.MustParseAddr(from[ipv4]), 40000), To: netip.AddrPortFrom(pod, 8080), Flags: lab.SYN | lab.ACK}
	tap, err := peer.Tap(map[dst]string{podIP: "eth0", secondIP: "net1"}[to])
	lab.Check(t, err)
	defer tap.Close()
	lab.Check(t, peer.Inject(stray))
	passed(t, peer, pod)
	arrived, err := tap.Read()
	lab.Check(t, err)
	for _, a := range arrived {
		answered = answered || a.From == stray.To && a.Flags&lab.RST != 0
	}
	return answered
}
