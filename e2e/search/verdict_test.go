// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// outcome is what an ordinary connection met.
type outcome string

const (
	metProxy   outcome = "proxy"
	metDirect  outcome = "direct"
	metRefusal outcome = "refused"
	metNothing outcome = "nothing"
	noSocket   outcome = "no socket"
)

// exemptInbound are the ports to which others may connect past the proxy.
var exemptInbound = []uint16{tunnelPort, excludedPort, probePort}

// begins notes a SYN that arrives on an excluded interface: its answers are exempt, too.
func (r *run) begins(by actor, s lab.Segment) {
	if r.excluded && by == peer2 && s.Flags == lab.SYN {
		r.outside[[2]netip.AddrPort{s.To, s.From}] = true
	}
}

// watch reads what has arrived outside: no SYN of the application may leave, and no answer
// of the application to a SYN, except where they are exempt.
func (r *run) watch() error {
	for link, tap := range r.taps {
		arrived, err := tap.Read()
		if err != nil {
			return err
		}
		for _, a := range arrived {
			ends := [2]netip.AddrPort{a.From, a.To}
			if r.fenced {
				r.judgeArrived(link, a)
			}
			if a.Protocol != unix.IPPROTO_TCP {
				continue
			}
			r.arrived[ends] = a.Segment
			// A captured SYN of a socket that is bound to eth0 leaves on it, to localhost. The
			// pod's kernel drops all answers to it: they come from localhost, on eth0.
			if r.answered[a.From] && a.To.Addr().IsLoopback() && a.Flags&(lab.ACK|lab.RST) == lab.ACK {
				r.hole("a host outside answered for localhost", a.From, a.To)
			}
			exempt := r.excluded && link == 1 || a.To.Port() == excludedPort // also what answers a SYN there
			if a.DSCP != dscpApp || a.Flags&lab.SYN == 0 || exempt || a.To.Addr().IsLoopback() {
				continue
			}
			switch {
			case a.Flags&lab.ACK == 0:
				r.hole("a SYN of the application left", a.From, a.To)
			case a.Flags&lab.ACK != 0 && !slices.Contains(exemptInbound, a.From.Port()) && !r.outside[ends] && !r.cookies: // a cookie has no sender
				r.hole("the application answered a SYN", a.From, a.To)
			}
		}
	}
	return nil
}

func (r *run) hole(what string, from, to netip.AddrPort) {
	r.holes = append(r.holes, fmt.Sprintf("%s, from %s to %s", what, from, to))
}

// verdict accepts for the application what is left, and makes the ordinary connections.
func (r *run) verdict(count map[outcome]int) error {
	for _, by := range apps {
		for _, fd := range r.sockets[by] {
			r.judgeReceived(by, fd)
		}
	}
	for _, l := range r.listeners {
		r.verdictOfAccepted(l)
	}
	ends := []func() (outcome, error){r.connectOut, r.beConnected}
	if r.inFirst {
		slices.Reverse(ends)
	}
	for _, end := range ends {
		met, err := end()
		if err != nil {
			return err
		}
		count[met]++
		if err := r.watch(); err != nil || len(r.holes) > 0 {
			return err
		}
	}
	return nil
}

// verdictOfAccepted wants no connection from outside that the proxy did not hand on.
func (r *run) verdictOfAccepted(l *listener) {
	l.accept()
	for client, fd := range l.conns {
		local, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		server := lab.AddrPort(local)
		if r.isPeer(client.Addr()) && r.capturedIn(server.Port(), client.Addr()) && !r.handedOn[client.Addr()] && !r.outside[[2]netip.AddrPort{server, client}] {
			r.hole("the application accepted a connection", client, server)
		}
	}
}

func (r *run) isPeer(a netip.Addr) bool {
	return a == peerAddresses[0][r.family] || a == peerAddresses[1][r.family]
}

func (r *run) capturedIn(port uint16, client netip.Addr) bool {
	return !slices.Contains(exemptInbound, port) && (!r.excluded || client == peerAddresses[0][r.family])
}

// connectOut has the application connect to the peer.
func (r *run) connectOut() (outcome, error) {
	r.dropAll(app, app2, proxy)
	local, remote := r.ends(r.names)
	r.forgetAccepted()
	fd, err := r.dial(app, dial{from: local, to: remote, reuse: unix.SO_REUSEADDR})
	if fd < 0 || err != nil && err != unix.EINPROGRESS {
		return noSocket, nil
	}
	server := r.answering[r.names.remote]
	if remote.Port() == excludedPort {
		server = r.served[service{peer + actor(r.names.remote), excludedPort}]
	}
	met, err := r.meets(fd, local.Addr(), server, r.served[service{proxy, r.ports.OutboundPort}])
	if met == metDirect && remote.Port() != excludedPort && (!r.excluded || r.names.remote == 0) {
		r.hole("the application reached", local, remote)
	}
	return met, err
}

// beConnected has the peer connect to the application.
func (r *run) beConnected() (outcome, error) {
	r.dropAll(anybody...)
	local, remote := r.ends(r.names)
	r.forgetAccepted()
	l, err := listen(r.processes[app], dial{from: local, reuse: unix.SO_REUSEADDR, backlog: backlog})
	if err != nil {
		return noSocket, nil
	}
	r.sockets[app] = append(r.sockets[app], l.fd)
	r.listeners = append(r.listeners, l)
	by := peer + actor(r.names.remote)
	fd, err := r.dial(by, dial{from: remote, to: local, reuse: unix.SO_REUSEPORT})
	if fd < 0 || err != nil && err != unix.EINPROGRESS {
		return noSocket, nil
	}
	met, err := r.meets(fd, remote.Addr(), l, r.served[service{proxy, r.ports.InboundPort}])
	if met == metDirect && r.capturedIn(local.Port(), remote.Addr()) {
		r.hole("the application was reached", remote, local)
	}
	return met, err
}

func (r *run) dial(by actor, d dial) (fd int, err error) {
	_ = r.processes[by].Do(func() error {
		fd, err = d.open()
		return nil
	})
	if fd >= 0 {
		r.sockets[by] = append(r.sockets[by], fd)
	}
	return fd, err
}

// forgetAccepted resets connections that actions made: they could have the same addresses.
func (r *run) forgetAccepted() {
	for _, l := range r.answering {
		if l != nil {
			l.forget()
		}
	}
	for _, l := range r.served {
		l.forget()
	}
}

// meets returns who has accepted a connection. One that is pending was refused by the rules
// if they have counted it; else it has a little more time.
func (r *run) meets(fd int, client netip.Addr, direct, proxied *listener) (outcome, error) {
	var refused error
	met := func() bool {
		var established bool
		if established, refused = connected(fd); refused != nil {
			return true
		}
		return established && (direct != nil && direct.accepted(client) || proxied.accepted(client))
	}
	if !wait(time.Millisecond, met) {
		if counted, err := r.refusal(); err != nil || counted {
			return metRefusal, err
		}
		wait(20*time.Millisecond, met)
	}
	switch {
	case direct != nil && direct.accepted(client):
		return metDirect, nil
	case proxied.accepted(client):
		return metProxy, nil
	case refused != nil:
		return metRefusal, nil
	}
	return metNothing, nil
}

// refusal reports whether the rules have refused packets since the last call.
func (w *world) refusal() (bool, error) {
	packets, err := w.pod.Refused(w.backend)
	before := w.refused
	w.refused = packets
	return packets > before, err
}
