// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Own ports begin at firstPort in the pod, and peerPorts higher outside. Innocent
// connections have their own, too: conntrack must not take one for another of a moment ago.
const (
	firstPort     = 16000
	lastPort      = 30000
	peerPorts     = 14000
	firstInnocent = 45000
	lastInnocent  = 59999
)

// run is a sequence with ports, and what came of it.
type run struct {
	*world
	sequence
	ctx     context.Context
	own     uint16
	sockets [5][]int
	// answering are the listeners of the peers at the sequence's port.
	answering [2]*listener
	backlogs  []int // connections that fill a peer's backlog
	listeners []*listener
	arrived   map[[2]netip.AddrPort]lab.Segment // the newest, by addresses
	handedOn  map[netip.Addr]bool               // in whose name the proxy has connected
	outside   map[[2]netip.AddrPort]bool        // began on an excluded interface
	answered  map[netip.AddrPort]bool           // by a host outside, for localhost
	letOut    map[flow]bool                     // packets other than TCP that arrived outside
	holes     []string                          // ways around capture
}

func (w *world) begin(ctx context.Context, s sequence) (*run, error) {
	w.last = next(w.last, firstPort, lastPort)
	if s.names.localPort != own {
		s.names.remotePort = own // one of the ports has to be fresh
	}
	r := &run{
		world: w, sequence: s, ctx: ctx, own: w.last,
		arrived: map[[2]netip.AddrPort]lab.Segment{}, handedOn: map[netip.Addr]bool{}, outside: map[[2]netip.AddrPort]bool{}, answered: map[netip.AddrPort]bool{},
		letOut: map[flow]bool{},
	}
	for i, by := range peers {
		at := s.names
		at.remote = i
		state := listens
		if i == s.names.remote {
			state = s.state
		}
		if err := r.answer(action{by: by, at: at}, state); err != nil {
			return r, err
		}
	}
	return r, nil
}

func next(port, first, last uint16) uint16 {
	if port < first || port >= last {
		return first
	}
	return port + 1
}

// do runs the actions. A hole ends it.
func (r *run) do() error {
	for _, a := range r.actions {
		if err := a.kind.do(r, a); err != nil && !expected(err) {
			return fmt.Errorf("%s %s: %w", a.by, a.kind.name, err)
		}
		if err := r.watch(); err != nil || len(r.holes) > 0 {
			return err
		}
	}
	return nil
}

// expected reports whether an error is an answer to what a process tried.
func expected(err error) bool {
	errno, ok := errors.AsType[unix.Errno](err)
	return ok && errno != unix.EMFILE && errno != unix.ENFILE && errno != unix.EBADF && errno != unix.EFAULT
}

// ends are the addresses and ports of names.
func (r *run) ends(n names) (local, remote netip.AddrPort) {
	port := func(name string, fresh uint16) uint16 {
		switch name {
		case tunnel:
			return tunnelPort
		case excluded:
			return excludedPort
		}
		return fresh
	}
	if n.localPort != own {
		n.remotePort = own
	}
	return netip.AddrPortFrom(podAddresses[n.local][r.family], port(n.localPort, r.own)),
		netip.AddrPortFrom(peerAddresses[n.remote][r.family], port(n.remotePort, r.own+peerPorts))
}

func (r *run) open(a action, d dial) error {
	if d.reuse == 0 {
		d.reuse = a.reuse
	}
	return r.processes[a.by].Do(func() error {
		fd, err := d.open()
		if fd >= 0 {
			r.sockets[a.by] = append(r.sockets[a.by], fd)
			if !d.to.IsValid() && err == nil {
				r.listeners = append(r.listeners, &listener{fd, map[netip.AddrPort]int{}})
			}
		}
		return err
	})
}

// answer changes what a peer does at the sequence's port.
func (r *run) answer(a action, state string) error {
	which := a.by - peer
	if r.answering[which] != nil {
		r.answering[which].close()
		r.answering[which] = nil
	}
	for _, fd := range r.backlogs {
		reset(fd)
	}
	r.backlogs = nil
	if state == closed || r.names.remotePort != own {
		return nil
	}
	at := r.names
	at.remote = int(which)
	_, where := r.ends(at)
	d := dial{from: where, reuse: unix.SO_REUSEPORT, backlog: backlog}
	if state == silent {
		d.backlog = 0
	}
	l, err := listen(r.processes[a.by], d)
	if err != nil {
		return fmt.Errorf("listening outside: %w", err)
	}
	r.answering[which] = l
	if state == silent {
		return r.processes[a.by].Do(func() error {
			for range 2 {
				fd, err := dial{from: netip.AddrPortFrom(where.Addr(), 0), to: where}.open()
				if fd < 0 {
					return err
				}
				r.backlogs = append(r.backlogs, fd)
			}
			return nil
		})
	}
	return nil
}

// accept has the application accept all that has come.
func (r *run) accept() {
	for _, l := range r.listeners {
		l.accept()
	}
}

// newest acts on the socket that a process made last.
func (r *run) newest(by actor, act func(fd int)) error {
	if n := len(r.sockets[by]); n > 0 {
		return r.processes[by].Do(func() error { act(r.sockets[by][n-1]); return nil })
	}
	return nil
}

func (r *run) close(by actor) { r.drop(by, func(fd int) { _ = unix.Close(fd) }) }

func (r *run) reset(by actor) { r.drop(by, reset) }

// drop ends the newest socket.
func (r *run) drop(by actor, end func(fd int)) {
	n := len(r.sockets[by])
	if n == 0 {
		return
	}
	fd := r.sockets[by][n-1]
	r.judgeReceived(by, fd)
	r.sockets[by] = r.sockets[by][:n-1]
	for i, l := range r.listeners {
		if l.fd == fd {
			r.verdictOfAccepted(l)
			l.forget()
			r.listeners = append(r.listeners[:i], r.listeners[i+1:]...)
			break
		}
	}
	end(fd)
}

// dropAll ends all sockets of some processes.
func (r *run) dropAll(of ...actor) {
	for _, by := range of {
		for len(r.sockets[by]) > 0 {
			if r.closeHard {
				r.reset(by)
			} else {
				r.close(by)
			}
		}
	}
}

// end leaves no socket behind.
func (r *run) end() {
	r.closeHard = true
	r.dropAll(anybody...)
	r.forgetAccepted()
	for _, l := range r.answering {
		if l != nil {
			l.close()
		}
	}
	for _, fd := range r.backlogs {
		reset(fd)
	}
}
