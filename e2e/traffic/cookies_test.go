// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
)

// configure writes a setting of a host's network.
func configure(t *testing.T, host *lab.Host, key, value string) {
	t.Helper()
	lab.Check(t, host.Do(func() error { return os.WriteFile("/proc/sys/net/"+key, []byte(value), 0) }))
}

// cookieWorld is a pod whose application listens at 8080. A self-connect makes the
// application's listener accept SYN cookies, which are the same for all listeners.
func cookieWorld(t *testing.T, backend config.Backend, mode string, cookies int) world {
	t.Helper()
	w := newLinks(t)
	configure(t, w.pod, "ipv4/tcp_syncookies", fmt.Sprint(cookies)) // of IPv6, too
	w.serve(t, w.pod, "tcp", 8080, direct)
	lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(map[string]string{"sidecar.istio.io/interceptionMode": mode}, nil), dualStack())))
	return w
}

// forEachCookies runs a test in both modes and under every setting of SYN cookies.
func forEachCookies(t *testing.T, test func(t *testing.T, backend config.Backend, mode string, cookies int)) {
	t.Helper()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			for cookies := range 3 {
				t.Run(fmt.Sprintf("%s, tcp_syncookies=%d", mode, cookies), func(t *testing.T) { test(t, backend, mode, cookies) })
			}
		}
	})
}

// TestCookies: a client outside meets the proxy.
func TestCookies(t *testing.T) {
	t.Parallel()
	forEachCookies(t, func(t *testing.T, backend config.Backend, mode string, cookies int) {
		w := cookieWorld(t, backend, mode, cookies)
		w.serve(t, w.pod, "tcp", 15021, direct)
		w.sidecar(t, proxy, istioMesh)
		w.probeAll(t,
			in(podIP, 8080, inbound), out(app, podIP, 8080, direct), in(podIP, 8080, inbound), in(podIP, 15021, direct),
			out(proxy, podIP, 8080, inbound), out(app, localhost, 8080, direct), out(app, external, 80, outbound))
	})
}

// TestCookiesHandedOn: the proxy connects to the application in its client's name.
func TestCookiesHandedOn(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for cookies := range 3 {
			t.Run(fmt.Sprintf("tcp_syncookies=%d", cookies), func(t *testing.T) {
				w := cookieWorld(t, backend, "TPROXY", cookies)
				sidecar, err := w.pod.ProxyTransparently(proxy, ":15006")
				lab.Check(t, err)
				t.Cleanup(func() { _ = sidecar.Close() })
				for _, f := range bothFamilies {
					to := net.JoinHostPort(podIP[f], "8080")
					for _, port := range []string{"20000", "20001"} {
						answer, err := w.peer.Ask(app, "tcp", net.JoinHostPort(external[f], port), to)
						// The proxy takes a port of its own.
						if client := answer.Client; err != nil || client.Addr().Unmap().String() != external[f] || fmt.Sprint(client.Port()) == port {
							t.Errorf("%v from port %s: %q answers and sees client %s (%v)", f, port, answer.Server, client, err)
						}
						w.probe(t, out(app, podIP, 8080, direct), f)
					}
				}
			})
		}
	})
}

// TestFlood: while SYNs that are never completed fill the proxy's backlog, a client meets
// the proxy by a SYN cookie.
func TestFlood(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			t.Run(mode, func(t *testing.T) {
				w := cookieWorld(t, backend, mode, 1)
				configure(t, w.pod, "core/somaxconn", "8")
				w.sidecar(t, proxy, istioMesh)
				w.peer.Load(t, "table inet silence { chain prerouting { type filter hook prerouting priority raw; tcp dport 30000-30063 drop; }; }")
				for _, f := range bothFamilies {
					to := netip.AddrPortFrom(netip.MustParseAddr(podIP[f]), 8080)
					for port := range uint16(64) {
						from := netip.AddrPortFrom(netip.MustParseAddr(external[f]), 30000+port)
						lab.Check(t, w.peer.Inject(lab.Segment{From: from, To: to, Flags: lab.SYN}))
					}
					w.probe(t, in(podIP, 8080, inbound), f)
				}
			})
		}
	})
}

// TestLateCookie: the last segment of a handshake arrives after the proxy has ended, and maybe
// after conntrack has forgotten the first ones, as it does in a minute. It must not complete
// the handshake with the application.
func TestLateCookie(t *testing.T) {
	t.Parallel()
	forEachCookies(t, func(t *testing.T, backend config.Backend, mode string, cookies int) {
		w := cookieWorld(t, backend, mode, cookies)
		for _, f := range bothFamilies {
			for _, forgotten := range []bool{false, true} {
				listener, err := w.pod.ListenTransparently(proxy, ":15006")
				lab.Check(t, err)
				drop := silence(t, w.pod, `iifname "eth0" tcp flags & (syn | ack) == ack`)
				client, err := w.peer.Dial(app, "", net.JoinHostPort(podIP[f], "8080"))
				lab.Check(t, err)
				lab.Check(t, lab.StopListening(listener))
				w.probe(t, out(app, podIP, 8080, direct), f)
				if forgotten {
					lab.Check(t, w.pod.Do(func() error { return kernel.FlushEntries(t.Context()) }))
				}
				drop()
				_, err = client.Write([]byte{'.'})
				lab.Check(t, err)
				w.probe(t, out(app, podIP, 8080, direct), f) // accepted after a client that the byte led to the application
				passed(t, w.peer, netip.MustParseAddr(podIP[f]))
				if acknowledged(t, client) {
					t.Errorf("%v, forgotten %v: after the proxy's end, the application has the client's connection", f, forgotten)
				}
				lab.Check(t, client.Close())
			}
		}
	})
}

// acknowledged reports whether the other side has all that was sent.
func acknowledged(t *testing.T, conn *net.TCPConn) bool {
	t.Helper()
	raw, err := conn.SyscallConn()
	lab.Check(t, err)
	unsent, state := 1, uint8(0)
	lab.Check(t, raw.Control(func(fd uintptr) {
		if info, infoErr := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); infoErr == nil {
			state = info.State
		}
		unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	}))
	lab.Check(t, err)
	const closed = 7 // by a reset
	return state != closed && unsent == 0
}
