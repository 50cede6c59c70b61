// SPDX-License-Identifier: Apache-2.0

package search

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
)

// kind is one of the things that an actor can do.
type kind struct {
	name string
	by   []actor
	do   func(r *run, a action) error
}

var (
	apps    = []actor{app, app2}
	peers   = []actor{peer, peer2}
	anybody = []actor{app, app2, proxy, peer, peer2}
)

var kinds = []*kind{
	{"connects", apps, func(r *run, a action) error { return r.connect(a, dial{}) }},
	{"connects on lo", apps, func(r *run, a action) error { return r.connect(a, dial{device: "lo"}) }},
	{"connects on eth0", apps, func(r *run, a action) error { return r.connect(a, dial{device: "eth0"}) }},
	{"connects on net1", apps, func(r *run, a action) error { return r.connect(a, dial{device: "net1"}) }},
	{"connects by MPTCP", apps, func(r *run, a action) error { return r.connect(a, dial{protocol: unix.IPPROTO_MPTCP}) }},
	{"connects by SMC", apps, func(r *run, a action) error { return r.connect(a, dial{protocol: protocolSMC}) }},
	{"connects by fast open", apps, func(r *run, a action) error { return r.connect(a, dial{fastOpen: true}) }},
	{"connects by a source route", apps, func(r *run, a action) error { return r.connect(a, dial{sourceRoute: true}) }},
	{"connects to the peer as the peer", apps, func(r *run, a action) error {
		_, peer := r.ends(a.at)
		return r.open(a, dial{freebind: true, from: netip.AddrPortFrom(peer.Addr(), 0), to: peer})
	}},
	{"connects to the pod as the peer", apps, func(r *run, a action) error { return r.connectAs(a, dial{freebind: true}) }},
	{"connects to the pod as the peer, on lo", apps, func(r *run, a action) error { return r.connectAs(a, dial{freebind: true, device: "lo"}) }},
	{"listens", apps, func(r *run, a action) error { return r.listen(a, dial{backlog: backlog}) }},
	{"listens on lo", apps, func(r *run, a action) error { return r.listen(a, dial{backlog: backlog, device: "lo"}) }},
	{"listens by MPTCP", apps, func(r *run, a action) error {
		return r.listen(a, dial{backlog: backlog, protocol: unix.IPPROTO_MPTCP})
	}},
	{"listens as the peer", apps, func(r *run, a action) error { return r.listenAs(a) }},
	{"listens with a full backlog", apps, func(r *run, a action) error { return r.listen(a, dial{}) }},
	{"accepts", apps, func(r *run, a action) error { r.accept(); return nil }},

	{"connects out", []actor{proxy}, func(r *run, a action) error { return r.connect(a, dial{}) }},
	{"hands a connection on", []actor{proxy}, func(r *run, a action) error { return r.handOn(a) }},

	{"connects in", peers, func(r *run, a action) error { return r.connectIn(a) }},
	{"listens again", peers, func(r *run, a action) error { return r.answer(a, listens) }},
	{"falls silent", peers, func(r *run, a action) error { return r.answer(a, silent) }},
	{"stops listening", peers, func(r *run, a action) error { return r.answer(a, closed) }},
	{"sends a SYN", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.SYN}, false) }},
	{"sends a SYN as the other peer", peers, func(r *run, a action) error { return r.spoof(a) }},
	{"sends a SYN-ACK", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.SYN | lab.ACK}, false) }},
	{"sends an ACK", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.ACK}, false) }},
	{"sends a signed SYN", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.SYN, Signed: true}, false) }},
	{"sends a signed ACK", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.ACK, Signed: true}, false) }},
	{"sends a FIN", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.FIN | lab.ACK}, false) }},
	{"sends a reset", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.RST | lab.ACK}, false) }},
	{"sends a right SYN-ACK", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.SYN | lab.ACK}, true) }},
	{"answers as localhost", peers, func(r *run, a action) error { return r.answerAsLocalhost(a) }},
	{"sends a right ACK", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.ACK}, true) }},
	{"sends a right reset", peers, func(r *run, a action) error { return r.send(a, lab.Segment{Flags: lab.RST | lab.ACK}, true) }},
	{"sends an ICMP error", peers, func(r *run, a action) error { return r.unreachable(a) }},

	{"closes", anybody, func(r *run, a action) error { r.close(a.by); return nil }},
	{"resets", anybody, func(r *run, a action) error { r.reset(a.by); return nil }},
	{"half-closes", anybody, func(r *run, a action) error {
		return r.newest(a.by, func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) })
	}},
	{"writes", anybody, func(r *run, a action) error {
		return r.newest(a.by, func(fd int) { _, _ = unix.SendmsgN(fd, []byte{payload(a.by)}, nil, nil, unix.MSG_NOSIGNAL) })
	}},
	{"disconnects", anybody, func(r *run, a action) error { return r.newest(a.by, disconnect) }},
	{"is forgotten by conntrack", []actor{app}, func(r *run, a action) error { return r.expire(a) }},
}

const backlog = 64

func (r *run) connect(a action, d dial) error {
	d.from, d.to = r.ends(a.at)
	return r.open(a, d)
}

// connectAs has the pod call itself from an address and port of the peer's.
func (r *run) connectAs(a action, d dial) error {
	d.to, d.from = r.ends(a.at)
	return r.open(a, d)
}

func (r *run) connectIn(a action) error {
	a.at.remote = int(a.by - peer)
	a.reuse = unix.SO_REUSEPORT // the peer listens at the same port
	return r.connectAs(a, dial{})
}

// handOn is what the proxy does for a client: it connects to the application, under TPROXY
// in the client's name.
func (r *run) handOn(a action) error {
	d := dial{transparent: r.transparent, mark: lab.ProxyMark}
	if r.ipv4 && r.family == 1 {
		return nil // the proxy gets none
	}
	if !r.transparent {
		d.to, _ = r.ends(a.at)
		d.mark, d.from = 0, netip.AddrPortFrom(r.source(r.family), 0)
		return r.open(a, d)
	}
	_, client := r.ends(a.at)
	r.handedOn[client.Addr()] = true
	return r.connectAs(a, d)
}

func (r *run) listen(a action, d dial) error {
	d.from, _ = r.ends(a.at)
	if err := r.open(a, d); err != nil || d.backlog > 0 {
		return err
	}
	return r.fill(a.by, d.from)
}

func (r *run) listenAs(a action) error {
	_, from := r.ends(a.at)
	return r.open(a, dial{from: from, freebind: true, backlog: backlog})
}

// fill makes a backlog full.
func (r *run) fill(by actor, listener netip.AddrPort) error {
	for range 2 {
		if err := r.open(action{by: by}, dial{from: netip.AddrPortFrom(listener.Addr(), 0), to: listener}); err != nil {
			return err
		}
	}
	return nil
}

// send sends a segment that acknowledges what the pod sent last, if it is a right one.
func (r *run) send(a action, s lab.Segment, right bool) error {
	a.at.remote = int(a.by - peer)
	local, remote := r.ends(a.at)
	s.From, s.To = remote, local
	if right {
		if err := r.watch(); err != nil {
			return err
		}
		if newest, ok := r.arrived[[2]netip.AddrPort{local, remote}]; ok {
			s.Seq, s.Ack = newest.Ack, newest.Seq+1
		}
	}
	r.begins(a.by, s)
	return r.processes[a.by].Do(s.Send)
}

// answerAsLocalhost answers a SYN that was redirected to the proxy and left the pod.
func (r *run) answerAsLocalhost(a action) error {
	local, _ := r.ends(a.at)
	proxy := netip.AddrPortFrom(localhost[r.family], r.ports.OutboundPort)
	syn, ok := r.arrived[[2]netip.AddrPort{local, proxy}]
	if !ok {
		return nil
	}
	r.answered[local] = true
	return r.processes[a.by].Do(lab.Segment{From: proxy, To: local, Flags: lab.SYN | lab.ACK, Seq: 1, Ack: syn.Seq + 1}.Send)
}

func (r *run) spoof(a action) error {
	a.at.remote = 1 - int(a.by-peer)
	local, remote := r.ends(a.at)
	s := lab.Segment{From: remote, To: local, Flags: lab.SYN}
	r.begins(a.by, s)
	return r.processes[a.by].Do(s.Send)
}

func (r *run) unreachable(a action) error {
	a.at.remote = int(a.by - peer)
	local, remote := r.ends(a.at)
	about := lab.Segment{From: local, To: remote, Flags: lab.SYN}
	if newest, ok := r.arrived[[2]netip.AddrPort{local, remote}]; ok {
		about.Seq = newest.Seq
	}
	return r.processes[a.by].Do(lab.Unreachable{From: remote.Addr(), Of: about}.Send)
}

// disconnect takes a socket's connection away, and leaves the socket.
func disconnect(fd int) {
	unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, _ = unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), unsafe.Sizeof(unspecified))
}

// expire ends the entries of the sequence's connection, as their time-out does.
func (r *run) expire(a action) error {
	local, remote := r.ends(a.at)
	return r.root.Do(func() error {
		entries, _, err := kernel.Entries(r.ctx, 1000, func(e kernel.Entry) bool {
			return e.Client == local && e.Server == remote || e.Client == remote && e.Server == local
		})
		if err != nil {
			return err
		}
		return kernel.DeleteEntries(r.ctx, entries)
	})
}
