// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestSegmentOpensNoWayOut has a server outside send a segment, which the pod
// drops silently, to a port that is not captured. Conntrack keeps an entry of it,
// takes the SYN that a process of the pod then sends from that port to that server
// for part of the same connection, and keeps it from nat: it must not get out. The
// proxy's own connection does.
func TestSegmentOpensNoWayOut(t *testing.T) {
	const port = 8080
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range []string{"REDIRECT", "TPROXY"} {
			t.Run(mode, func(t *testing.T) {
				w := newWorld(t, []int{80}, istioMesh)
				pod := injected(spelled(map[string]string{"includeInboundPorts": "9080"}), nil)
				pod.Annotations["sidecar.istio.io/interceptionMode"] = mode
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, pod, dualStack())))
				for _, f := range bothFamilies {
					for _, by := range []struct {
						lab.Owner
						port uint16
						want string
					}{{app, port, outbound}, {proxy, port + 1, direct}} {
						from := netip.AddrPortFrom(netip.MustParseAddr(podIP[f]), by.port)
						to := netip.AddrPortFrom(netip.MustParseAddr(external[f]), 80)
						if before := answerOf(w, by.Owner, from, to); before != by.want {
							t.Fatalf("%v, uid %d: %q answers without a segment, want %q", f, by.UID, before, by.want)
						}
						from = netip.AddrPortFrom(from.Addr(), by.port+100)
						lab.Check(t, w.peer.Inject(lab.Segment{From: to, To: from, Flags: lab.ACK, Signed: true}))
						if after := answerOf(w, by.Owner, from, to); after == direct && by.want != direct {
							t.Errorf("%v: after a segment to %s the pod's process gets out past the proxy", f, from)
						} else if by.want == direct && after != direct {
							t.Errorf("%v: after a segment to %s the proxy gets %q", f, from, after)
						}
					}
				}
			})
		}
	})
}

// answerOf is the server that answers, or the error.
func answerOf(w world, by lab.Owner, from, to netip.AddrPort) string {
	answer, err := w.pod.Ask(by, "tcp", from.String(), to.String())
	if err != nil {
		return strings.TrimSpace(err.Error())
	}
	return answer.Server
}
