// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestFenceLetsNoAnswerIn sends datagrams from outside that answer what the application has
// sent, but not to outside, or nothing.
func TestFenceLetsNoAnswerIn(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newWorld(t, nil, istioMesh)
		w.capture(t, backend, decide(t, fencedPod(nil, map[string]string{"ISTIO_DUAL_STACK": "true"}), config.DefaultSettings()))
		application, err := w.pod.Start(app)
		lab.Check(t, err)
		defer application.Close()
		outside, err := w.peer.Start(rootUser)
		lab.Check(t, err)
		defer outside.Close()
		port := uint16(5000)
		for _, tt := range []struct {
			name, device string
			to           dst
			unsent       bool
		}{
			{"what died on lo", "lo", onlyIPv4(external), false},        // IPv6 has no route to others on it,
			{"what the pod sent to itself", "", onlyIPv6(podIP), false}, // IPv4's source would be a martian
			{"nothing", "", external, true},
		} {
			for _, f := range bothFamilies {
				if tt.to[f] == "" {
					continue
				}
				port++ // an entry of its own
				to := netip.AddrPortFrom(netip.MustParseAddr(tt.to[f]), 5000)
				at := netip.AddrPortFrom(netip.MustParseAddr(podIP[f]), port)
				if !tt.unsent {
					sendDatagram(t, application, at, to, tt.device)
				}
				waiting := sendDatagram(t, application, at, at, "") // a socket that eth0 reaches
				w.expectNoDatagram(t, backend, waiting, to, f.String()+", "+tt.name, func() { sendDatagram(t, outside, to, at, "") })
			}
		}
	})
}

// TestFenceAnswersNoOtherHost captures what the application sends in another host's name. Neither the
// proxy's answer, which can contain what was sent, nor the kernel's leaves the pod to that host.
func TestFenceAnswersNoOtherHost(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range []string{"REDIRECT", "TPROXY"} {
			w := newWorld(t, []int{80}, istioMesh)
			env := map[string]string{"ISTIO_DUAL_STACK": "true", "ISTIO_META_DNS_CAPTURE": "true"}
			w.capture(t, backend, decide(t, fencedPod(map[string]string{"sidecar.istio.io/interceptionMode": mode}, env), config.DefaultSettings()))
			tap, err := w.peer.Tap("eth0")
			lab.Check(t, err)
			defer tap.Close()
			application, err := w.pod.Start(app)
			lab.Check(t, err)
			defer application.Close()
			before, err := w.pod.Refused(backend)
			lab.Check(t, err)
			other := netip.AddrPortFrom(netip.MustParseAddr(external[ipv6]), 5000)
			for _, to := range []uint16{53, 80} { // the proxy listens for queries, and on 80, nothing captures UDP
				sendDatagram(t, application, other, netip.AddrPortFrom(netip.MustParseAddr(included[ipv6]), to), "")
			}
			lab.Check(t, application.Do(func() error {
				fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				t.Cleanup(func() { _ = unix.Close(fd) })
				err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_FREEBIND, 1), unix.Bind(fd, lab.Sockaddr(other)))
				if connected := unix.Connect(fd, lab.Sockaddr(netip.AddrPortFrom(netip.MustParseAddr(included[ipv6]), 80))); connected != unix.EINPROGRESS {
					err = errors.Join(err, connected)
				}
				return err
			}))
			lab.Eventually(t, func() error {
				now, err := w.pod.Refused(backend)
				if err == nil && now < before+3 {
					err = fmt.Errorf("%d packets were refused", now-before)
				}
				return err
			})
			arrived, err := tap.Read()
			lab.Check(t, err)
			for _, a := range arrived {
				if a.To == other || a.To.Addr() == other.Addr() && a.From.Addr() != netip.MustParseAddr(podIP[ipv6]) && a.Type < 133 {
					t.Errorf("%s: %+v left the pod", mode, a)
				}
			}
		}
	})
}

// expectNoDatagram expects the rules to refuse the datagram that send sends, before a socket receives it.
func (w world) expectNoDatagram(t *testing.T, backend config.Backend, socket int, from netip.AddrPort, name string, send func()) {
	t.Helper()
	before, err := w.pod.Refused(backend)
	lab.Check(t, err)
	send()
	lab.Eventually(t, func() error {
		now, err := w.pod.Refused(backend)
		n, sender, received := unix.Recvfrom(socket, make([]byte, 8), unix.MSG_DONTWAIT)
		if received == nil && n > 0 && lab.AddrPort(sender) == from {
			t.Errorf("%s: the datagram came in", name)
			return nil
		}
		if err == nil && now == before {
			err = errors.New("nothing was refused")
		}
		return err
	})
}

// sendDatagram sends a datagram from an address that may be another host's, by a socket that
// it returns.
func sendDatagram(t *testing.T, by *lab.Process, from, to netip.AddrPort, device string) (fd int) {
	t.Helper()
	lab.Check(t, by.Do(func() (err error) {
		domain, level, freebind, transparent := unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_FREEBIND, unix.IPV6_TRANSPARENT
		if from.Addr().Is4() {
			domain, level, freebind, transparent = unix.AF_INET, unix.SOL_IP, unix.IP_FREEBIND, unix.IP_TRANSPARENT
		}
		if fd, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		_ = unix.SetsockoptInt(fd, level, transparent, 1) // only with a capability
		err = errors.Join(unix.SetsockoptInt(fd, level, freebind, 1), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		if device != "" {
			err = errors.Join(err, unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, device))
		}
		if err = errors.Join(err, unix.Bind(fd, lab.Sockaddr(from))); err != nil {
			return err
		}
		if err := unix.Sendto(fd, []byte("x"), 0, lab.Sockaddr(to)); err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
		return nil
	}))
	return fd
}
