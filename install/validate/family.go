// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Family is one of the two.
type Family string

const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

func (f Family) has(a netip.Addr) bool { return a.Is4() == (f == IPv4) }

// tcp and udp are what package net calls these over the family.
func (f Family) tcp() string { return "tcp" + f.digit() }
func (f Family) udp() string { return "udp" + f.digit() }

func (f Family) digit() string { return string(f[len("IPv"):]) }

// localhost is where redirected connections arrive.
func (f Family) localhost() netip.Addr {
	if f == IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// Families is which of them to prove.
type Families string

const (
	Auto     Families = "auto"
	OnlyIPv4 Families = "ipv4"
	OnlyIPv6 Families = "ipv6"
	Both     Families = "both"
)

// surroundings are what a process can see of its pod.
type surroundings struct {
	addresses   []netip.Addr // where others can reach the pod
	proxySource bool         // lo has the address that comes with IPv6 rules
}

func lookAround() (surroundings, error) {
	var pod surroundings
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

// families are those that have to be captured. Auto follows the mesh: IPv6 of a
// pod that has IPv4, too, is left alone, unless the rules' address says that
// they are for both.
func (pod surroundings) families(asked Families) []Family {
	switch asked {
	case OnlyIPv4:
		return []Family{IPv4}
	case OnlyIPv6:
		return []Family{IPv6}
	case Both:
		return []Family{IPv4, IPv6}
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
