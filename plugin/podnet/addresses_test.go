// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestInterruptedList reads a list again that the kernel interrupted, and takes no part
// of one for the whole.
func TestInterruptedList(t *testing.T) {
	t.Parallel()
	interrupted := fmt.Errorf("addresses: %w", netlink.ErrDumpInterrupted)
	other := errors.New("no permission")
	for _, tt := range []struct {
		faults       []error // of the reads, one after the other
		reads, found int
		want         error
	}{
		{[]error{nil}, 1, 2, nil},
		{[]error{interrupted, interrupted, nil}, 3, 2, nil},
		{[]error{interrupted, other}, 2, 0, other},
		{[]error{interrupted, interrupted, interrupted, interrupted, interrupted, nil}, 5, 0, netlink.ErrDumpInterrupted},
	} {
		reads := 0
		found, err := listWhole(func() ([]string, error) {
			fault := tt.faults[reads]
			reads++
			switch {
			case fault == nil:
				return []string{"10.0.0.1", "fd00::1"}, nil
			case errors.Is(fault, netlink.ErrDumpInterrupted):
				return []string{"10.0.0.1"}, fault
			}
			return nil, fault
		})
		if reads != tt.reads || len(found) != tt.found || !errors.Is(err, tt.want) {
			t.Errorf("%v: %d reads, %v, %v", tt.faults, reads, found, err)
		}
	}
}

// TestNodeAddresses has interfaces on which other programs put the addresses of Services, which are the node's
// only if the node receives packets to each of their ports.
func TestNodeAddresses(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	own := netip.MustParseAddr("192.0.2.1")
	for address, name := range map[string]string{
		own.String() + "/32": "nodelocaldns", "10.96.0.1/32": "kube-ipvs0", "10.96.0.2/32": "kube-dummy-if",
	} {
		host.Within(t, func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}) })
		lab.Check(t, host.AddAddresses(name, address))
	}
	host.Within(t, func() error {
		found, err := nodeAddresses()
		services := slices.ContainsFunc(found, netip.MustParsePrefix("10.96.0.0/16").Contains)
		if !slices.Contains(found, own) || services {
			t.Errorf("got %v, want %s, and no address of a Service", found, own)
		}
		return err
	})
}

// TestAddressesOf omits the address that ADD put on lo for the proxy, with which a pod would seem to have a
// usable IPv6 address.
func TestAddressesOf(t *testing.T) {
	t.Parallel()
	var all []netlink.Addr
	for _, cidr := range []string{"192.0.2.2/24", "::1/128", capture.ProxySourceIPv6.String(), "2001:db8::2/64"} {
		all = append(all, *address(cidr))
	}
	want := []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.IPv6Loopback(), netip.MustParseAddr("2001:db8::2")}
	if got := addressesOf(all); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
