// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Ports of datagrams. The fence has an exception for two of them, to and from all peers but the node.
const (
	outPort  = 7001
	inPort   = 7002
	quicPort = 443
	dnsPort  = 15053 // of the proxy
)

const openings = "out:udp:7001@10.76.0.0/14,out:udp:7001@fd70::/12,in:udp:7002@10.76.0.0/14,in:udp:7002@fd70::/12"

// flow is the ends of a packet. Of an echo, the pod's port is the identifier, and there is no other.
type flow struct {
	protocol    byte
	pod, remote netip.AddrPort
}

// delivers notes a datagram that the fence lets in: its answers may leave.
func (r *run) delivers(by actor, d datagram) {
	if by == peer && d.podPort == inPort && d.as == nil {
		r.outside[[2]netip.AddrPort{d.to, d.from}] = true
	}
}

// judgeArrived wants no packet of the application outside that neither an exclusion nor an
// exception of the fence is about.
func (r *run) judgeArrived(link int, a lab.Arrived) {
	of, ends := flow{a.Protocol, a.From, a.To}, [2]netip.AddrPort{a.From, a.To}
	apps := len(a.Payload) > 0 && a.Payload[0] == payload(app)
	exempt := r.excluded && link == 1 || a.To.Port() == excludedPort || slices.Contains(exemptInbound, a.From.Port())
	isPods := func(address netip.Addr) bool {
		return slices.Contains(append(podAddresses[0][:], podAddresses[1][:]...), address) || address.IsLinkLocalUnicast() || address.IsUnspecified()
	}
	// The answer to what the application sent in another host's name. To the pod itself, the kernel sends
	// resets of refused SYNs, by the device to which their socket is bound.
	if !isPods(a.From.Addr()) && !isPods(a.To.Addr()) && !exempt && a.To.Port() != outPort {
		r.hole(fmt.Sprintf("a packet of protocol %d left with another host's address", a.Protocol), a.From, a.To)
	}
	if a.Protocol == unix.IPPROTO_TCP {
		if apps && !exempt && !r.outside[ends] && a.DSCP == dscpApp {
			r.hole("data of the application left", a.From, a.To)
		}
		return
	}
	r.letOut[of] = true
	toPeer := a.Protocol == unix.IPPROTO_UDP && a.To.Addr() == peerAddresses[0][r.family]
	if a.DSCP != dscpApp && !apps || kernelMade(a) || toPeer && (a.To.Port() == outPort || a.Later || r.outside[ends]) {
		return
	}
	r.hole(fmt.Sprintf("a packet of protocol %d left", a.Protocol), a.From, a.To)
}

// kernelMade reports whether a packet is one that a network needs, and no process can make
// without privilege.
func kernelMade(a lab.Arrived) bool {
	switch {
	case a.Protocol == unix.IPPROTO_ICMP:
		return slices.Contains([]byte{3, 11, 12}, a.Type)
	case a.Protocol != unix.IPPROTO_ICMPV6:
		return false
	case a.HopLimit == 255:
		return a.Type >= 133 && a.Type <= 136
	case a.HopLimit == 1:
		return slices.Contains([]byte{130, 131, 132, 143}, a.Type)
	}
	return a.Type >= 1 && a.Type <= 4
}

// judgeReceived wants no datagram from outside at a socket of the application that answers
// nothing, and that no exception is about.
func (r *run) judgeReceived(by actor, fd int) {
	if !r.fenced || by > app2 {
		return
	}
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	protocol, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	bound, err := unix.Getsockname(fd)
	if kind != unix.SOCK_DGRAM || err != nil {
		return
	}
	_ = r.watch() // what was let out before
	buffer := make([]byte, 8192)
	for errors := 0; errors < 8; { // ICMP errors come first
		n, from, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return
		}
		if err != nil {
			errors++
			continue
		}
		if n == 0 || buffer[n-1] != payload(peer) {
			continue
		}
		port, client := lab.AddrPort(bound).Port(), lab.AddrPort(from)
		allowed := protocol == unix.IPPROTO_UDP && port == inPort && client.Addr() == peerAddresses[0][r.family]
		for of := range r.letOut {
			allowed = allowed || of.protocol == byte(protocol) && of.pod.Port() == port && of.remote == client
		}
		if !allowed {
			r.hole(fmt.Sprintf("the application received a packet of protocol %d", protocol), client, lab.AddrPort(bound))
		}
	}
}

// serveDatagrams makes the sockets that all sequences share.
func (w *world) serveDatagrams() error {
	for f := range 2 {
		any := both("0.0.0.0", "::")[f]
		for _, s := range []struct {
			at netip.Addr
			service
		}{{any, service{app2, appPort}}, {any, service{app2, inPort}}, {any, service{peer, outPort}}, {any, service{peer, peerPort}}, {localhost[f], service{proxy, dnsPort}}} {
			d := datagram{dial: dial{from: netip.AddrPortFrom(s.at, s.port), reuse: unix.SO_REUSEADDR}}
			err := w.processes[s.by].Do(func() (err error) {
				w.answers[f][s.service], err = d.open()
				return err
			})
			if err != nil {
				return fmt.Errorf("%s serves UDP at %d: %w", s.by, s.port, err)
			}
			w.closers = append(w.closers, func() error { return unix.Close(w.answers[f][s.service]) })
		}
	}
	return nil
}

// harmedDatagram returns the first exchange of datagrams that failed although the fence permits it.
func (r *run) harmedDatagram() string {
	if !r.fenced {
		return ""
	}
	pod, outside, f := podAddresses[0][r.family], peerAddresses[0][r.family], r.family
	for _, e := range []struct {
		name     string
		by       actor
		from, to netip.Addr
		port     uint16
		server   service
	}{
		{"a datagram on localhost", app, localhost[f], localhost[f], appPort, service{app2, appPort}},
		{"a datagram to the pod itself", app, pod, pod, appPort, service{app2, appPort}},
		{"a datagram of the proxy", proxy, pod, outside, peerPort, service{peer, peerPort}},
		{"a datagram that may leave", app, pod, outside, outPort, service{peer, outPort}},
		{"a datagram that is let in", peer, outside, pod, inPort, service{app2, inPort}},
		{"a captured query", app, pod, outside, 53, service{proxy, dnsPort}},
	} {
		if e.port == 53 && (!r.dns || r.ipv4 && f == 1) {
			continue
		}
		r.world.innocent = next(r.world.innocent, firstInnocent, lastInnocent)
		d := datagram{dial: dial{from: netip.AddrPortFrom(e.from, r.world.innocent), to: netip.AddrPortFrom(e.to, e.port)}}
		r.outside[[2]netip.AddrPort{d.to, d.from}] = e.by == peer // its answer may leave
		fd, err := -1, error(nil)
		_ = r.processes[e.by].Do(func() error {
			if fd, err = d.open(); err == nil {
				err = d.send(fd, 'i')
			}
			return nil
		})
		if fd >= 0 {
			defer unix.Close(fd)
		}
		if err != nil {
			return fmt.Sprintf("%s is refused: %v", e.name, err)
		}
		answered := wait(patience, func() bool {
			client, came := receive(r.answers[f][e.server], e.from)
			if came {
				err = unix.Sendto(r.answers[f][e.server], []byte{'i'}, 0, client)
			}
			return came
		}) && err == nil && wait(patience, func() bool { _, came := receive(fd, e.to); return came })
		if !answered {
			return fmt.Sprintf("%s is not answered: %v", e.name, err)
		}
	}
	return ""
}

// receive returns who sent a datagram, if one came from an innocent process at an address.
func receive(fd int, from netip.Addr) (unix.Sockaddr, bool) {
	for buffer := make([]byte, 16); ; {
		n, sender, err := unix.Recvfrom(fd, buffer, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return nil, false
		}
		if err == nil && n == 1 && buffer[0] == 'i' && lab.AddrPort(sender).Addr() == from {
			return sender, true
		}
	}
}
