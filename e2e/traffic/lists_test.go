// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestLongLists excludes up to 8,000 ranges of each family, which is about all
// that an annotation can hold, and up to 10,000 ports: each element is in the
// kernel and has its effect.
func TestLongLists(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newProbeWorld(t, []int{80, 20_001, 20_002, 20_019, 20_020, 39_999, 40_000}, istioMesh)
		for _, n := range []int{1, 10, 8_000} {
			t.Run(fmt.Sprintf("%d ranges", n), func(t *testing.T) {
				var ranges []string
				for i := range n {
					ranges = append(ranges, oddRange(i, ipv4), oddRange(i, ipv6))
				}
				rs := decide(t, injected(spelled(map[string]string{"excludeOutboundIPRanges": strings.Join(ranges, ",")}), nil), dualStack())
				netns := w.capture(t, backend, rs)
				expectElements(t, w, backend, n, "exclude_outbound_ranges_ipv4", `10\.2\.\d+\.\d+`)
				expectElements(t, w, backend, n, "exclude_outbound_ranges_ipv6", `fd02::[0-9a-f:]+`)
				for _, i := range []int{0, n / 2, n - 1} {
					for _, f := range bothFamilies {
						prefix := netip.MustParsePrefix(oddRange(i, f))
						w.meets(t, prefix.Addr(), 80, direct)
						w.meets(t, prefix.Addr().Next(), 80, outbound) // the gap behind it
					}
				}
				netns.expectSame(rs)
			})
		}
		for _, n := range []int{1, 10, 10_000} {
			t.Run(fmt.Sprintf("%d ports", n), func(t *testing.T) {
				var ports []string
				for i := range n {
					ports = append(ports, fmt.Sprint(20_001+2*i))
				}
				first, last := 20_001, 20_001+2*(n-1)
				rs := decide(t, injected(spelled(map[string]string{"excludeOutboundPorts": strings.Join(ports, ",")}), nil), dualStack())
				netns := w.capture(t, backend, rs)
				expectElements(t, w, backend, n, "exclude_outbound_ports", `[2-6]\d{4}`)
				w.probeAll(t,
					out(app, external, first, direct), out(app, external, last, direct), out(app, external, first+1, outbound),
					out(app, external, last+1, outbound))
				netns.expectSame(rs)
			})
		}
	})
}

// oddRange is every second address from 10.2.0.1 and fd02::1 on.
func oddRange(i int, f family) string {
	offset := uint32(2*i + 1)
	if f == ipv4 {
		address := binary.BigEndian.AppendUint32(nil, 10<<24|2<<16|offset)
		return netip.AddrFrom4([4]byte(address)).String() + "/32"
	}
	address := [16]byte{0: 0xfd, 1: 0x02}
	binary.BigEndian.PutUint32(address[12:], offset)
	return netip.AddrFrom16(address).String() + "/128"
}

// meets adds an address to the peer and connects to it.
func (w world) meets(t *testing.T, address netip.Addr, port int, want string) {
	t.Helper()
	// Added more than once in some tests; what counts is that it is there.
	_ = w.peer.AddAddresses("lo", netip.PrefixFrom(address, address.BitLen()).String())
	lab.Check(t, w.peer.WaitForIPv6())
	f, to := ipv4, dst{address.String(), ""}
	if address.Is6() {
		f, to = ipv6, dst{"", address.String()}
	}
	w.probe(t, out(app, to, port, want), f)
}

// expectElements counts a set's elements in nft's listing.
func expectElements(t *testing.T, w world, backend config.Backend, n int, set, element string) {
	t.Helper()
	if n == 1 || backend != config.NFTables {
		return // a single value needs no set, and iptables knows none
	}
	listed := list(t, w.pod, "set", "inet", capture.TableName, set)
	if got := len(regexp.MustCompile(element).FindAllString(listed, -1)); got != n {
		t.Errorf("set %s has %d elements, want %d", set, got, n)
	}
}

// TestEdges lists ranges at the ends of the address space, adjacent,
// overlapping and repeated ones.
func TestEdges(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newProbeWorld(t, []int{80}, istioMesh)
		for _, test := range []struct {
			ranges        string
			in, notWithin []string
		}{
			{"0.0.0.0/0,::/0", []string{"10.1.2.3", "2001:db8:1::3"}, nil},
			{"128.0.0.0/1,8000::/1", []string{"203.0.113.9", "fd88::9"}, []string{"10.1.2.3", "2001:db8:1::3"}},
			{"10.0.0.0/9,10.128.0.0/9,224.0.0.0/3", []string{"10.1.2.3", "10.200.0.1"}, []string{"11.0.0.1"}},
			{"10.0.0.0/8,10.1.0.0/16,10.1.2.3/32,10.0.0.0/8", []string{"10.1.2.3", "10.255.255.254"}, []string{"11.0.0.1"}},
			{"0.0.0.0/1,255.255.255.255/32,ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128,::/1", []string{"10.1.2.3", "2001:db8:1::3"}, []string{"203.0.113.9", "fd88::9"}},
			{"10.1.2.3/31, 2001:db8:1::3/127", []string{"10.1.2.2", "10.1.2.3", "2001:db8:1::2"}, []string{"10.1.2.4", "10.1.2.1", "2001:db8:1::4"}},
		} {
			for key, meets := range map[string][2]string{"includeOutboundIPRanges": {outbound, direct}, "excludeOutboundIPRanges": {direct, outbound}} {
				t.Run(key+" "+test.ranges, func(t *testing.T) {
					rs := decide(t, injected(spelled(map[string]string{key: test.ranges}), nil), dualStack())
					netns := w.capture(t, backend, rs)
					for _, address := range test.in {
						w.meets(t, netip.MustParseAddr(address), 80, meets[0])
					}
					for _, address := range test.notWithin {
						w.meets(t, netip.MustParseAddr(address), 80, meets[1])
					}
					netns.expectSame(rs)
				})
			}
		}
	})
}
