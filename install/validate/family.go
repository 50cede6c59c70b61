// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Family is an IP family.
type Family string

const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

func (f Family) has(a netip.Addr) bool { return a.Is4() == (f == IPv4) }

// network returns Go's name of a protocol in this family, such as "tcp4".
func (f Family) network(protocol string) string { return protocol + string(f[len("IPv"):]) }

// localhost returns the address to which the rules redirect the pod's own connections.
func (f Family) localhost() netip.Addr {
	if f == IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// Families selects the families whose capture is proved.
type Families string

const (
	Auto     Families = "auto"
	OnlyIPv4 Families = "ipv4"
	OnlyIPv6 Families = "ipv6"
	Both     Families = "both"
)

// podNetwork is the state of the pod's network namespace that a process without capabilities can read.
type podNetwork struct {
	addresses   []netip.Addr // addresses other than loopback and link-local
	proxySource bool         // lo has the address that ADD or a repair adds with IPv6 rules of Istio and Kuma
}

func readPodNetwork() (podNetwork, error) {
	var pod podNetwork
	list, err := net.InterfaceAddrs()
	if err != nil {
		return pod, fmt.Errorf("reading the pod's addresses: %w", err)
	}
	for _, a := range list {
		prefix, err := netip.ParsePrefix(a.String())
		switch address := prefix.Addr(); {
		case err != nil || address.IsLoopback() || address.IsLinkLocalUnicast():
		case address == capture.ProxySourceIPv6.Addr():
			pod.proxySource = true
		default:
			pod.addresses = append(pod.addresses, address)
		}
	}
	return pod, nil
}

// families returns the families to prove. With Auto, they are the families of the pod's addresses, but
// in a dual-stack pod, IPv6 only if proxySource shows that the pod's IPv6 is captured. For other meshes
// than Istio and Kuma, proxySource does not show that, so the caller has to select Both.
func (pod podNetwork) families(selected Families) []Family {
	named := map[Families][]Family{OnlyIPv4: {IPv4}, OnlyIPv6: {IPv6}, Both: {IPv4, IPv6}}
	if families, ok := named[selected]; ok {
		return families
	}
	var families []Family
	if slices.ContainsFunc(pod.addresses, IPv4.has) {
		families = append(families, IPv4)
	}
	if slices.ContainsFunc(pod.addresses, IPv6.has) && (len(families) == 0 || pod.proxySource) {
		families = append(families, IPv6)
	}
	return families
}
