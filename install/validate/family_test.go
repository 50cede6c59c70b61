// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"net/netip"
	"slices"
	"testing"
)

func TestFamilies(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")
	only4, only6, both := []netip.Addr{v4}, []netip.Addr{v6}, []netip.Addr{v6, v4}
	for _, test := range []struct {
		name     string
		pod      podNetwork
		selected Families
		want     []Family
	}{
		{"IPv4 alone", podNetwork{addresses: only4}, Auto, []Family{IPv4}},
		{"IPv6 alone", podNetwork{addresses: only6}, Auto, []Family{IPv6}},
		{"both, IPv6 not captured", podNetwork{addresses: both}, Auto, []Family{IPv4}},
		{"both, captured", podNetwork{both, true}, Auto, []Family{IPv4, IPv6}},
		{"IPv6 rules without IPv6", podNetwork{only4, true}, Auto, []Family{IPv4}},
		{"no address", podNetwork{}, Auto, nil},
		{"IPv4 selected", podNetwork{both, true}, OnlyIPv4, []Family{IPv4}},
		{"IPv6 selected", podNetwork{addresses: only4}, OnlyIPv6, []Family{IPv6}},
		{"both selected", podNetwork{addresses: both}, Both, []Family{IPv4, IPv6}},
	} {
		if got := test.pod.families(test.selected); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestDestination(t *testing.T) {
	pod := podNetwork{addresses: []netip.Addr{netip.MustParseAddr("fd00::2"), netip.MustParseAddr("10.0.0.2")}}
	for _, test := range []struct {
		direction Direction
		family    Family
		want      string
	}{
		{Outbound, IPv4, "192.0.2.1"},
		{Outbound, IPv6, "2001:db8::1"},
		{Inbound, IPv4, "10.0.0.2"},
		{Inbound, IPv6, "fd00::2"},
	} {
		s := Settings{Direction: test.direction, Destinations: DefaultDestinations()}
		if got, err := s.destination(pod, test.family); err != nil || got.String() != test.want {
			t.Errorf("%s %s: got %s (%v), want %s", test.direction, test.family, got, err, test.want)
		}
	}
	if got, err := (Settings{Direction: Outbound}).destination(pod, IPv4); err == nil {
		t.Errorf("without destinations: got %s", got)
	}
}
