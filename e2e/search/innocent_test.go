// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// innocent is a connection that has to succeed whatever happened before.
type innocent struct {
	name string
	by   actor
	dial
	server service
}

// patience is for connections that succeed: a busy machine fails none of them.
const patience = 5 * time.Second

// serve makes the listeners that all sequences share.
func (w *world) serve() error {
	everywhere := netip.IPv6Unspecified()
	for _, s := range []service{
		{app2, appPort},
		{app2, probePort},
		{proxy, w.ports.OutboundPort},
		{proxy, w.ports.InboundPort},
		{peer, peerPort},
		{peer, excludedPort},
		{peer2, peerPort},
		{peer2, excludedPort},
	} {
		d := dial{from: netip.AddrPortFrom(everywhere, s.port), backlog: 4096, transparent: s.by == proxy && w.transparent}
		if s.by >= peer {
			d.reuse = unix.SO_REUSEPORT
		}
		l, err := listen(w.processes[s.by], d)
		if err != nil {
			return fmt.Errorf("%s serves port %d: %w", s.by, s.port, err)
		}
		w.closers = append(w.closers, func() error { l.close(); return nil })
		w.served[s] = l
	}
	return nil
}

func (w *world) innocents(f int) []innocent {
	outbound, inbound := service{proxy, w.ports.OutboundPort}, service{proxy, w.ports.InboundPort}
	to := func(from, to netip.Addr, port uint16) dial {
		w.innocent = next(w.innocent, firstInnocent, lastInnocent)
		return dial{from: netip.AddrPortFrom(from, w.innocent), to: netip.AddrPortFrom(to, port)}
	}
	pod, outside := podAddresses[0][f], peerAddresses[0][f]
	handOn := to(w.source(f), pod, appPort)
	if w.transparent {
		handOn = to(outside, pod, appPort)
		handOn.transparent, handOn.mark = true, lab.ProxyMark
	}
	itself := service{app2, appPort}
	if w.mesh == config.Consul { // it captures all but localhost on loopback
		itself = outbound
	}
	all := []innocent{
		{"localhost", app, to(localhost[f], localhost[f], appPort), service{app2, appPort}},
		{"the pod itself", app, to(pod, pod, appPort), itself},
		{"an excluded port outside", app, to(pod, outside, excludedPort), service{peer, excludedPort}},
		{"an excluded port of the pod", peer, to(outside, pod, probePort), service{app2, probePort}},
		{"the proxy's own connection", proxy, to(pod, outside, peerPort), service{peer, peerPort}},
		{"a connection that the proxy hands on", proxy, handOn, service{app2, appPort}},
		{"a captured connection out", app, to(pod, outside, peerPort), outbound},
		{"a captured connection in", peer, to(outside, pod, appPort), inbound},
		{"a connection to the proxy's port", peer, to(outside, pod, w.ports.InboundPort), inbound},
	}
	pod, outside = podAddresses[1][f], peerAddresses[1][f]
	second, third := outbound, inbound
	if w.excluded {
		second, third = service{peer2, peerPort}, service{app2, appPort}
	}
	all = append(all,
		innocent{"a connection out on net1", app, to(pod, outside, peerPort), second},
		innocent{"a connection in on net1", peer2, to(outside, pod, appPort), third})
	return slices.DeleteFunc(all, func(i innocent) bool {
		uncaptured := w.ipv4 && f == 1 // and so refused, except on an excluded interface
		return (w.egress || uncaptured) && (i.by == peer || i.by == peer2 && !w.excluded) ||
			uncaptured && (i.server == outbound || i.transparent || i.from.Addr() == proxySource[1])
	})
}

// harmed returns what happened to the first innocent connection that failed.
func (r *run) harmed() string {
	r.forgetAccepted()
	for _, i := range r.innocents(r.family) {
		fd, err := r.dial(i.by, i.dial)
		if fd < 0 || err != nil && err != unix.EINPROGRESS {
			return fmt.Sprintf("%s is refused: %v", i.name, err)
		}
		established, server := false, r.served[i.server]
		wait(patience, func() bool {
			established, err = connected(fd)
			return established || err != nil
		})
		switch {
		case err != nil:
			return fmt.Sprintf("%s is refused: %v", i.name, err)
		case !established:
			return i.name + " is not answered"
		case !wait(patience, func() bool { return server.accepted(i.from.Addr()) }):
			return fmt.Sprintf("%s is not answered by %s at %d", i.name, i.server.by, i.server.port)
		}
	}
	return r.harmedDatagram()
}
