// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Traced describes a packet before it meets our rules, and other programs' chains that can affect it.
type Traced struct {
	Packet trace.Packet // with the interface by which it arrives or leaves
	Hooks  []string     // the results of hooksInFront
	Unread string       // why Hooks may be incomplete; empty if it is complete
	Fault  error        // why the interface or Hooks are unknown
}

// traced sets a packet's interface, if it is not set, in the calling thread's namespace, and adds the
// results of hooksInFront. If the pod sends the packet, and neither interface nor source is set, traced
// also sets the source that the kernel would choose.
func traced(ctx context.Context, p trace.Packet) (t Traced) {
	t.Packet = p
	switch {
	case p.Interface != "":
	case p.Inbound:
		t.Packet, t.Fault = arriving(p)
	default:
		t.Packet, t.Fault = leaving(p)
	}
	if t.Fault != nil {
		return t
	}
	t.Hooks, t.Fault = hooksInFront(ctx, t.Packet)
	if tooLarge, ok := errors.AsType[nfnetlink.TooLarge](t.Fault); ok {
		t.Unread, t.Fault = tooLarge.Error(), nil
	}
	return t
}

func leaving(p trace.Packet) (trace.Packet, error) {
	to := p.To.Addr()
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Mark: p.Mark})
	if err == nil && len(routes) == 0 {
		err = unix.ENETUNREACH
	}
	if err != nil {
		return p, fmt.Errorf("looking up the pod's route to %s: %w", to, err)
	}
	if source, ok := netip.AddrFromSlice(routes[0].Src); ok && !p.From.Addr().IsValid() {
		p.From = netip.AddrPortFrom(source.Unmap(), 0)
	}
	p.Interface, err = nameOf(routes[0].LinkIndex)
	return p, err
}

func arriving(p trace.Packet) (trace.Packet, error) {
	own, err := podnet.ListAddresses()
	if err != nil {
		return p, fmt.Errorf("reading the pod's addresses: %w", err)
	}
	for _, a := range own {
		if address, ok := netip.AddrFromSlice(a.IP); ok && address.Unmap() == p.To.Addr() {
			p.Interface, err = nameOf(a.LinkIndex)
			return p, err
		}
	}
	return p, fmt.Errorf("%s is no address of the pod", p.To.Addr())
}

func nameOf(index int) (string, error) {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return "", fmt.Errorf("finding the pod's interface %d: %w", index, err)
	}
	return link.Attrs().Name, nil
}
