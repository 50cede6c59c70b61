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

// packetFlags describe the first packet of a connection.
type packetFlags struct {
	to, from, as, by string
	udp, in          bool
	mark             uint32
}

// packetFlagNames are those that have no meaning without --to.
var packetFlagNames = []string{"from", "as", "udp", "in", "interface", "mark"}

// declare takes what the interface is by default.
func (f *packetFlags) declare(flags *pflag.FlagSet, byDefault string) {
	flags.StringVar(&f.to, "to", "", "trace the first packet of a connection to this IP:PORT: print which rule decides about it, and its path; empty: no trace")
	flags.StringVar(&f.from, "from", "", "with --to: the packet's source, IP or IP:PORT; empty: a source that no rule names")
	flags.StringVar(&f.as, "as", "", "with --to: the sending process, UID:GID; empty: a user and a group that no rule names")
	flags.BoolVar(&f.udp, "udp", false, "with --to: UDP instead of TCP")
	flags.BoolVar(&f.in, "in", false, "with --to: the packet comes from another host, to an address of the pod")
	flags.StringVar(&f.by, "interface", "", "with --to: the interface by which the packet leaves or arrives; empty: "+byDefault)
	flags.Uint32Var(&f.mark, "mark", 0, "with --to: the packet's mark, as the proxy sets it with TPROXY")
}

// asked reports whether a trace is asked for.
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

// packet returns the packet, whose interface may be empty. The error names every fault.
func (f *packetFlags) packet() (trace.Packet, error) {
	p := trace.Packet{Inbound: f.in, Protocol: capture.TCP, Interface: f.by, Mark: f.mark}
	if f.udp {
		p.Protocol = capture.UDP
	}
	var addressErr, ownerErr error
	p.To, p.From, addressErr = f.addresses()
	p.Owner, ownerErr = f.owner()
	return p, errors.Join(addressErr, ownerErr, f.interfaceFault(), f.inboundFaults())
}

func (f *packetFlags) addresses() (to, from netip.AddrPort, err error) {
	to, toErr := netip.ParseAddrPort(f.to)
	if to = unmapped(to); toErr != nil || to.Port() == 0 || hasZone(to) {
		err = faultOf("to", f.to, "an IP address and a port, as 10.1.2.3:443 or [2001:db8::1]:443")
	}
	if f.from == "" {
		return to, from, err
	}
	from, fromErr := parseSource(f.from)
	if from = unmapped(from); fromErr != nil || hasZone(from) {
		return to, from, errors.Join(err, faultOf("from", f.from, "an IP address, with or without a port, as 10.1.2.3 or 10.1.2.3:50000"))
	}
	if err == nil && from.Addr().Is4() != to.Addr().Is4() {
		err = faultOf("from", f.from, "an address of the same IP family as --to")
	}
	return to, from, err
}

func (f *packetFlags) owner() (*trace.Owner, error) {
	if f.as == "" {
		return nil, nil
	}
	user, group, _ := strings.Cut(f.as, ":")
	uid, userErr := strconv.ParseUint(user, 10, 32)
	gid, groupErr := strconv.ParseUint(group, 10, 32)
	if userErr != nil || groupErr != nil {
		return nil, faultOf("as", f.as, "a user and a group by number, UID:GID, as 1000:1000")
	}
	return &trace.Owner{UID: uint32(uid), GID: uint32(gid)}, nil
}

func (f *packetFlags) interfaceFault() error {
	if f.by == "" {
		return nil
	}
	if _, err := config.ParseInterface(f.by); err != nil {
		return fmt.Errorf("--interface is %w", err)
	}
	return nil
}

// inboundFaults refuses what a packet from another host does not have.
func (f *packetFlags) inboundFaults() error {
	if !f.in {
		return nil
	}
	var faults []error
	if f.by == "lo" {
		faults = append(faults, faultOf("interface", f.by, "with --in, an interface to other hosts"))
	}
	if f.as != "" {
		faults = append(faults, errors.New("--as with --in: rules don't know the sender on another host; leave out one of the two"))
	}
	if f.mark != 0 {
		faults = append(faults, errors.New("--mark with --in: a mark does not leave its host; leave out one of the two"))
	}
	return errors.Join(faults...)
}

func faultOf(flag, value, expected string) error {
	return fmt.Errorf("--%s is %q: expected %s", flag, value, expected)
}

func parseSource(text string) (netip.AddrPort, error) {
	if source, err := netip.ParseAddrPort(text); err == nil {
		return source, nil
	}
	address, err := netip.ParseAddr(text)
	return netip.AddrPortFrom(address, 0), err
}

// unmapped returns the IPv4 address of one that is mapped into IPv6.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// hasZone reports whether an address has a zone, which no rule could match.
func hasZone(a netip.AddrPort) bool { return a.Addr().Zone() != "" }
