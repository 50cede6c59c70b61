// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// packetFlags contains the flags that describe the first packet of a connection.
type packetFlags struct {
	to, from, as, by string
	udp, ping, in    bool
	mark             uint32
}

// packetFlagNames are the flags that require --to.
var packetFlagNames = []string{"from", "as", "udp", "ping", "in", "interface", "mark"}

// declare declares the flags. byDefault describes the default of --interface.
func (f *packetFlags) declare(flags *pflag.FlagSet, byDefault string) {
	flags.StringVar(&f.to, "to", "",
		"trace the first packet of a connection to this IP:PORT: print which rule decides about it, and its path; empty: no trace")
	flags.StringVar(&f.from, "from", "",
		"with --to: the packet's source, IP or IP:PORT; empty: that of the pod's routes, or one that no rule names")
	flags.StringVar(&f.as, "as", "", "with --to: the sending process, UID:GID; empty: a user and a group that no rule names")
	flags.BoolVar(&f.udp, "udp", false, "with --to: UDP instead of TCP")
	flags.BoolVar(&f.ping, "ping", false, "with --to, which then has no port: an ICMP echo request instead of TCP")
	flags.BoolVar(&f.in, "in", false, "with --to: the packet comes from another host, to an address of the pod")
	flags.StringVar(&f.by, "interface", "", "with --to: the interface by which the packet leaves or arrives; empty: "+byDefault)
	flags.Uint32Var(&f.mark, "mark", 0, "with --to: the packet's mark, as the proxy sets it with TPROXY")
}

// asked reports whether the flags request a trace, by --to. It returns an error if another flag
// describes a packet without --to.
func (f *packetFlags) asked(flags *pflag.FlagSet) (bool, error) {
	if f.to != "" {
		return true, nil
	}
	for _, name := range packetFlagNames {
		if flags.Changed(name) {
			return false, fmt.Errorf("--%s describes a packet: set --to, its destination, too", name)
		}
	}
	return false, nil
}

// packet returns the packet that the flags describe. Its interface can be empty. The error names the
// wrong flags.
func (f *packetFlags) packet() (trace.Packet, error) {
	p := trace.Packet{Inbound: f.in, Protocol: capture.TCP, Interface: f.by, Mark: f.mark}
	if f.udp {
		p.Protocol = capture.UDP
	}
	var faults []error
	refuse := func(flag, value, expected string) {
		faults = append(faults, fmt.Errorf("--%s is %q: expected %s", flag, value, expected))
	}
	to, err := parseAddress(f.to)
	p.To = unmapped(to)
	switch {
	case f.ping && f.udp:
		faults = append(faults, errors.New("--ping with --udp: a ping is neither UDP nor TCP; leave out one of the two"))
	case f.ping && (err != nil || to.Port() != 0 || hasZone(to)):
		refuse("to", f.to, "with --ping, an IP address without a port, as 10.1.2.3 or 2001:db8::1")
	case f.ping && p.To.Addr().Is4():
		p.Protocol = capture.ICMP
	case f.ping:
		p.Protocol = capture.ICMPv6
	case err != nil || to.Port() == 0 || hasZone(to):
		refuse("to", f.to, "an IP address and a port, as 10.1.2.3:443 or [2001:db8::1]:443")
	}
	if f.from != "" {
		from, err := parseAddress(f.from)
		p.From = unmapped(from)
		switch {
		case f.ping && from.Port() != 0:
			refuse("from", f.from, "with --ping, an IP address without a port, as 10.1.2.3")
		case err != nil || hasZone(from):
			refuse("from", f.from, "an IP address, with or without a port, as 10.1.2.3 or 10.1.2.3:50000")
		case len(faults) == 0 && p.From.Addr().Is4() != p.To.Addr().Is4():
			refuse("from", f.from, "an address of the same IP family as --to")
		}
	}
	if f.as != "" {
		user, group, _ := strings.Cut(f.as, ":")
		uid, userErr := strconv.ParseUint(user, 10, 32)
		gid, groupErr := strconv.ParseUint(group, 10, 32)
		if userErr != nil || groupErr != nil {
			refuse("as", f.as, "a user and a group by number, UID:GID, as 1000:1000")
		}
		p.Owner = &trace.Owner{UID: uint32(uid), GID: uint32(gid)}
	}
	if f.by != "" {
		if _, err := config.ParseInterface(f.by); err != nil {
			faults = append(faults, fmt.Errorf("--interface is %w", err))
		}
	}
	if f.in && f.by == "lo" {
		refuse("interface", f.by, "with --in, an interface to other hosts")
	}
	if f.in && f.as != "" {
		faults = append(faults, errors.New("--as with --in: rules don't know the sender on another host; leave out one of the two"))
	}
	if f.in && f.mark != 0 {
		faults = append(faults, errors.New("--mark with --in: a mark does not leave its host; leave out one of the two"))
	}
	return p, errors.Join(faults...)
}

// parseAddress parses an address with or without a port, which is 0 if there is none.
func parseAddress(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a, nil
	}
	address, err := netip.ParseAddr(text)
	return netip.AddrPortFrom(address, 0), err
}

// unmapped converts an IPv4 address that is mapped into IPv6 to an IPv4 address.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// hasZone reports whether an address has a zone, which no rule could match.
func hasZone(a netip.AddrPort) bool { return a.Addr().Zone() != "" }
