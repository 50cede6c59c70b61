// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
)

// waysOut are memories by which the application would connect past the proxy.
var waysOut = []memory{
	{name: "a SYN that died on lo", families: onlyFour, leave: leftOnLo},
	{name: "a SYN by an excluded interface", families: bothFamilies, under: excluding, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
		drop := silence(t, w.peer, `iifname "net1"`)
		begin(t, w.pod, lab.Connection{Owner: app, Device: "net1", From: client, To: server})
		drop()
	}},
	{name: "a SYN of the proxy", families: bothFamilies, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
		drop := silence(t, w.peer, "tcp flags syn")
		begin(t, w.pod, lab.Connection{Owner: proxy, From: client, To: server})
		drop()
	}},
	{name: "a SYN of an excluded group", families: bothFamilies, under: grouping, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
		drop := silence(t, w.peer, "tcp flags syn")
		begin(t, w.pod, lab.Connection{Owner: lab.Owner{UID: 1000, GID: 5}, From: client, To: server})
		drop()
	}},
	{name: "a SYN of a DNS server", families: bothFamilies, under: resolving, port: 53, leave: segmentOf(lab.SYN)},
	{name: "a SYN of the server", families: bothFamilies, leave: segmentOf(lab.SYN)},
	{name: "an ACK of the server", families: bothFamilies, leave: segmentOf(lab.ACK)},
	{name: "a SYN forged in the server's name", families: onlySix, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
		listener, err := w.pod.ListenSilently(client.String())
		lab.Check(t, err)
		begin(t, w.pod, lab.Connection{Owner: app, FreeBind: true, From: server, To: client})
		lab.Check(t, lab.StopListening(listener))
	}},
	{name: "nothing, by notrack", families: bothFamilies, leave: untracked},
}

// waysIn are memories by which a client would connect to the application.
var waysIn = []memory{
	{name: "a SYN of the application that died on lo", families: onlyFour, leave: leftOnLoByServer},
	{name: "a SYN to a rerouted interface that died on lo", families: onlyFour, under: rerouting, second: true, leave: leftOnLoByServer},
	{name: "a SYN on a rerouted interface, by notrack", families: bothFamilies, under: rerouting, second: true, leave: untracked},
	{name: "a SYN by an excluded interface", families: bothFamilies, under: excluding, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
		listener, err := w.pod.ListenSilently(server.String())
		lab.Check(t, err)
		begin(t, w.peer, lab.Connection{Device: "net1", From: client, To: server})
		w.waitForEntry(t, client)
		lab.Check(t, lab.StopListening(listener))
	}},
	{name: "nothing, by notrack", families: bothFamilies, leave: untracked},
}

// simultaneousOpens have the kernel answer a SYN that a process forged in the server's name.
// The process ignores resets.
var simultaneousOpens = []memory{
	simultaneousOpen(""),
	simultaneousOpen("eth0"),
	{name: "a connection that the proxy hands on", families: onlySix, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
		socket, err := w.pod.Begin(lab.Connection{Owner: app, Device: "eth0", IgnoreResets: true, From: client, To: server})
		lab.Check(t, err)
		lab.Check(t, w.pod.Do(func() error { return kernel.FlushEntries(t.Context()) }))                                                        // as if its time was over
		_ = ask(t, w.pod, lab.Connection{Owner: proxy, Mark: lab.ProxyMark, FreeBind: true, From: server, To: client, Limit: time.Millisecond}) // only the SYN matters
		lab.Check(t, socket.Close())
	}},
}

func simultaneousOpen(device string) memory {
	forge := func(t *testing.T, w world, client, server netip.AddrPort) {
		begin(t, w.pod, lab.Connection{Owner: app, FreeBind: true, From: server, To: client})
	}
	return memory{name: "a connection by the device " + device, families: onlySix, leave: func(t *testing.T, w world, client, server netip.AddrPort) {
		listener, err := w.pod.ListenSilently(client.String())
		lab.Check(t, err)
		forge(t, w, client, server)
		lab.Check(t, lab.StopListening(listener))
		socket, err := w.pod.Begin(lab.Connection{Owner: app, Device: device, IgnoreResets: true, From: client, To: server})
		lab.Check(t, err)
		forge(t, w, client, server)
		lab.Check(t, socket.Close())
	}}
}

// out leaves the memory for each owner, and returns those that the server outside then answers.
func (m memory) out(t *testing.T, w world, f family, owners ...lab.Owner) (answered []lab.Owner) {
	t.Helper()
	pod, peer := m.ends(f)
	server := netip.AddrPortFrom(peer, m.port)
	answering, err := w.peer.Serve("tcp", server.String(), direct)
	lab.Check(t, err)
	defer answering.Close()
	for i, by := range owners {
		client := netip.AddrPortFrom(pod, []uint16{15021, 15008}[i]) // not captured inbound
		m.leave(t, w, client, server)
		got := try(t, w.pod, lab.Connection{Owner: by, From: client, To: server})
		t.Logf("%v, uid %d: %q answers (%v)", f, by.UID, got.Answer.Server, got.Err)
		if got.Answer.Server == direct {
			answered = append(answered, by)
		}
	}
	return answered
}

// in leaves the memory, and reports whether the application then answers a client outside.
func (m memory) in(t *testing.T, w world, f family) bool {
	t.Helper()
	pod, peer := m.ends(f)
	client, server := netip.AddrPortFrom(peer, 20000), netip.AddrPortFrom(pod, m.port)
	m.leave(t, w, client, server)
	application, err := w.pod.Serve("tcp", server.String(), direct)
	lab.Check(t, err)
	defer application.Close()
	got := try(t, w.peer, lab.Connection{From: client, To: server})
	t.Logf("%v: %q answers (%v)", f, got.Answer.Server, got.Err)
	return got.Answer.Server == direct
}

// opens leaves the memory, and reports whether a SYN-ACK leaves the pod: past nat and, with a
// server that plays along, it opens a connection.
func (m memory) opens(t *testing.T, w world, f family) bool {
	t.Helper()
	pod, peer := m.ends(f)
	w.probe(t, out(proxy, external, 8080, direct), f) // the pod knows its neighbour
	return w.arrives(t, "tcp dport != 8080 tcp flags & (syn | ack) == (syn | ack)", func() {
		m.leave(t, w, netip.AddrPortFrom(pod, 20000), netip.AddrPortFrom(peer, m.port))
	})
}

// TestNoWayOut: whatever conntrack has of it, a connection of the application never
// leaves the pod but through the proxy; one of the proxy does.
func TestNoWayOut(t *testing.T) {
	t.Parallel()
	forEachMemory(t, waysOut, func(t *testing.T, w world, m memory, f family) {
		if got := m.out(t, w, f, app, proxy); !slices.Equal(got, []lab.Owner{proxy}) {
			t.Errorf("%v: %v get out past the proxy", f, got)
		}
	})
}

// TestNoWayIn: whatever conntrack has of it, a client's connection never reaches the
// application but through the proxy.
func TestNoWayIn(t *testing.T) {
	t.Parallel()
	forEachMemory(t, waysIn, func(t *testing.T, w world, m memory, f family) {
		if m.in(t, w, f) {
			t.Errorf("%v: the client reaches the application", f)
		}
	})
}

// TestNoSimultaneousOpen: no answer to a forged SYN leaves the pod.
func TestNoSimultaneousOpen(t *testing.T) {
	t.Parallel()
	forEachMemory(t, simultaneousOpens, func(t *testing.T, w world, m memory, f family) {
		if m.opens(t, w, f) {
			t.Errorf("%v: a SYN-ACK leaves the pod for the server", f)
		}
	})
}
