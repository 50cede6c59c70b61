// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// way is one around capture. try reports whether it is open.
type way struct {
	name  string   // of its item in deploy/reference/guarantees.md
	modes []string // in which it could be open
	try   func(t *testing.T, w world) bool
}

// openWays are those that the rules leave open.
var openWays = []way{
	{name: "the proxy's uid or gid", modes: modes, try: func(t *testing.T, w world) bool {
		w.serve(t, w.peer, "tcp", 80, direct)
		return w.reaches(out(proxyUID, external, 80, "")) && w.reaches(out(proxyGID, external, 80, ""))
	}},
	{name: "a socket that the proxy's user or another pod created", modes: modes, try: func(t *testing.T, w world) bool {
		w.serve(t, w.peer, "tcp", 80, direct)
		// Root connects it.
		got := ask(t, w.pod, lab.Connection{Owner: proxy, To: netip.MustParseAddrPort(external[ipv4] + ":80")})
		return got.Answer.Server == direct
	}},
	{name: "`AF_PACKET`", modes: modes, try: func(t *testing.T, w world) bool {
		return w.arrives(t, "tcp dport 80 tcp flags & (syn | ack) == syn", func() { sendFrame(t, w) })
	}},
	{name: "UDP, QUIC, UDP-Lite and SCTP", modes: modes, try: func(t *testing.T, w world) bool {
		w.serve(t, w.peer, "udp", 443, direct)
		open := w.reaches(udp(out(app, external, 443, "")))
		for protocol, name := range map[int]string{unix.IPPROTO_SCTP: "sctp", unix.IPPROTO_UDPLITE: "udplite"} {
			open = open && w.arrives(t, "meta l4proto "+name, func() { sendPacket(t, w, protocol) })
		}
		return open
	}},
	{name: "ports that are never captured", modes: modes, try: func(t *testing.T, w world) bool {
		w.serve(t, w.peer, "tcp", 15020, direct)
		open := w.reaches(out(app, external, 15020, ""))
		for _, port := range []int{15020, 15021, 15090} {
			w.serve(t, w.pod, "tcp", port, direct)
			open = open && w.reaches(in(podIP, port, ""))
		}
		return open
	}},
	// Under TPROXY, it would need a transparent socket, which takes NET_ADMIN or NET_RAW.
	{name: "an application that listens at 15001 or 15006", modes: modes[:1], try: func(t *testing.T, w world) bool {
		w.serve(t, w.pod, "tcp", 15001, direct)
		w.serve(t, w.pod, "tcp", 15006, direct)
		return w.reaches(out(app, external, 80, "")) && w.reaches(in(podIP, 8080, ""))
	}},
	{name: "an application that listens at 15001 or 15006", modes: modes[:1], try: func(t *testing.T, w world) bool {
		listener, err := w.pod.ListenTransparently(proxy, podIP[ipv4]+":15006") // Go takes 0.0.0.0 for both families
		lab.Check(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		w.serve(t, w.pod, "tcp6", 15006, direct)
		answer, _, _ := w.ask(in(podIP, 8080, ""), ipv6)
		return answer.Server == direct
	}},
}

// closedWays are others.
var closedWays = []way{
	{name: "SYN cookies", modes: modes[1:], try: func(t *testing.T, w world) bool {
		configure(t, w.pod, "ipv4/tcp_syncookies", "2") // of IPv6, too
		w.sidecar(t, proxy, istioMesh)
		w.serve(t, w.pod, "tcp", 8080, direct)
		return w.reaches(out(app, podIP, 8080, "")) && w.reaches(in(podIP, 8080, ""))
	}},
	{name: "bound to an interface", modes: modes[1:], try: func(t *testing.T, w world) bool {
		bound := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) (err error) {
			return errors.Join(conn.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "eth0") }), err)
		}}
		lab.Check(t, w.pod.Do(func() error {
			listener, err := bound.Listen(t.Context(), "tcp", ":8080")
			if err == nil {
				t.Cleanup(func() { _ = listener.Close() })
			}
			return err
		}))
		return w.arrives(t, "tcp dport 20000 tcp flags & (syn | ack) == (syn | ack)", func() {
			// The answer to the SYN leaves by eth0, so that the connection is never made. The time-out is that of the attempt only.
			from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(external[ipv4] + ":20000"))
			handOn := net.Dialer{Timeout: 100 * time.Millisecond, Control: lab.Marked, LocalAddr: from}
			lab.Check(t, w.pod.Do(func() error {
				if conn, err := handOn.Dial("tcp", podIP[ipv4]+":8080"); err == nil {
					return conn.Close()
				}
				return nil
			}))
		})
	}},
	// nat redirects its packets to loopback, and they leave by the interface all the same.
	{name: "a client that is bound to an interface", modes: modes, try: func(t *testing.T, w world) bool {
		return w.arrives(t, "ip daddr 127.0.0.0/8", func() { sendBound(t, w, ipv4) }) || w.arrives(t, "ip6 daddr ::1", func() { sendBound(t, w, ipv6) })
	}},
	// The kernel chooses the proxy's own ports for connections.
	{name: "`ip_local_port_range`", modes: modes, try: func(t *testing.T, w world) (open bool) {
		configure(t, w.pod, "ipv4/ip_local_port_range", "15001 15090") // of IPv6, too
		w.sidecar(t, proxy, istioMesh)
		w.serve(t, w.peer, "tcp", 80, direct)
		w.serve(t, w.pod, "tcp", 8080, direct)
		for range 100 {
			open = open || w.reaches(out(app, external, 80, ""))
		}
		return open || w.reaches(in(podIP, 8080, ""))
	}},
}

// reaches reports whether a probe meets no proxy, over both families.
func (w world) reaches(p probe) bool {
	for _, f := range bothFamilies {
		if answer, _, _ := w.ask(p, f); answer.Server != direct {
			return false
		}
	}
	return true
}

// sendPacket sends an empty packet of a protocol from the pod.
func sendPacket(t *testing.T, w world, protocol int) {
	t.Helper()
	lab.Check(t, w.pod.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return unix.Sendto(fd, make([]byte, 20), 0, lab.Sockaddr(netip.MustParseAddrPort(external[ipv4]+":0")))
	}))
}

// sendBound connects, and sends a datagram, by sockets that are bound to eth0.
func sendBound(t *testing.T, w world, f family) {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr(external[f]), 53)
	begin(t, w.pod, lab.Connection{Owner: app, Device: "eth0", To: to})
	bound := net.Dialer{Control: func(_, _ string, conn syscall.RawConn) (err error) {
		return errors.Join(conn.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "eth0") }), err)
	}}
	lab.Check(t, w.pod.Do(func() error {
		conn, err := bound.Dial("udp", to.String())
		if err != nil {
			return err
		}
		_, _ = conn.Write([]byte{0})
		return conn.Close()
	}))
}

// sendFrame sends a SYN from the pod, past netfilter.
func sendFrame(t *testing.T, w world) {
	t.Helper()
	var peer *net.Interface
	lab.Check(t, w.peer.Do(func() (err error) {
		peer, err = net.InterfaceByName("eth0")
		return err
	}))
	from, to := netip.MustParseAddrPort(podIP[ipv4]+":30000"), netip.MustParseAddrPort(external[ipv4]+":80")
	segment := lab.Segment{From: from, To: to, Flags: lab.SYN}.Bytes()
	packet := append([]byte{0x45, 0, 0, byte(20 + len(segment)), 0, 0, 0, 0, 64, unix.IPPROTO_TCP, 0, 0}, from.Addr().AsSlice()...)
	packet = append(packet, to.Addr().AsSlice()...)
	binary.BigEndian.PutUint16(packet[10:], checksum(packet))
	lab.Check(t, w.pod.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		destination := &unix.SockaddrLinklayer{Protocol: unix.ETH_P_IP>>8 | unix.ETH_P_IP<<8&0xff00, Ifindex: eth0.Index, Halen: 6}
		copy(destination.Addr[:], peer.HardwareAddr)
		return unix.Sendto(fd, append(packet, segment...), 0, destination)
	}))
}

// TestOpenWays: these ways around capture are open, as the reference says.
func TestOpenWays(t *testing.T) {
	t.Parallel()
	forEachWay(t, openWays, true)
}

// TestClosedWays: these are closed.
func TestClosedWays(t *testing.T) {
	t.Parallel()
	forEachWay(t, closedWays, false)
}

// forEachWay tries ways by each backend and mode.
func forEachWay(t *testing.T, ways []way, want bool) {
	t.Helper()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, way := range ways {
			for _, mode := range way.modes {
				t.Run(mode+", "+way.name, func(t *testing.T) {
					w := newLinks(t)
					lab.Check(t, open(t, w.pod, backend).Apply(decide(t, scenario{}.in(mode).podForIstio("true"), dualStack())))
					if way.try(t, w) != want {
						t.Errorf("open: %v", !want)
					}
				})
			}
		}
	})
}
