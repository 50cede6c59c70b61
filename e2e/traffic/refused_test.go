// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestIPv6Refused captures a pod that has only an IPv4 address at its ADD, and then
// gives it an IPv6 address, as a neighbour's router advertisement would.
func TestIPv6Refused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		annotations map[string]string
		env         map[string]string
		policy      config.IPv6Policy
	}{
		{"REDIRECT", nil, nil, config.IPv6Mesh},
		{"TPROXY", tproxy(nil), nil, config.IPv6Mesh},
		{"always", nil, nil, config.IPv6Always},
		{"never", nil, nil, config.IPv6Never},
		{"INVALID_DROP", nil, map[string]string{"INVALID_DROP": "true"}, config.IPv6Mesh},
		{"DNS", nil, captureDNS, config.IPv6Mesh},
		{"fenced", map[string]string{"capture-cni.io/fence": "true"}, nil, config.IPv6Mesh},
	} {
		t.Run(test.name, func(t *testing.T) {
			forEachBackend(t, func(t *testing.T, backend config.Backend) {
				settings := config.DefaultSettings()
				settings.IPv6 = test.policy
				annotations := spelled(test.annotations)
				annotations["traffic.sidecar.istio.io/excludeInterfaces"] = "net1"
				pod, datagrams, fenced := injected(annotations, test.env), direct, test.name == "fenced"
				if fenced {
					pod, datagrams = fence(pod), refused
				}
				decision, err := lab.Decide(pod, settings, netip.MustParseAddr(podIP[ipv4]), netip.MustParseAddr("fe80::1"))
				lab.Check(t, err)
				if len(decision.Warnings) > 0 {
					t.Errorf("warnings %q", decision.Warnings)
				}
				w := newProbeWorld(t, []int{53, 80, 8080, 15006, 15020}, config.Mesh{OutboundPort: 25001, InboundPort: 25006, DNSPort: 25053})
				lab.Check(t, open(t, w.pod, backend).Apply(capture.Rules(decision.Intent)))
				for _, p := range []probe{
					out(app, external, 80, refused), out(rootUser, external, 80, refused), out(app, external, 15020, direct),
					out(proxy, external, 80, direct), out(app, secondPeer, 80, direct),
					out(app, podIP, 8080, direct), out(app, localhost, 8080, direct), out(proxy, podIP, 8080, direct),
					in(secondIP, 8080, direct), udp(out(app, external, 80, datagrams)),
				} {
					w.probe(t, p, ipv6)
				}
				queried := datagrams
				if test.env["ISTIO_META_DNS_CAPTURE"] == "true" {
					queried = refused
				}
				w.probe(t, udp(out(app, external, 53, queried)), ipv6)
				w.probe(t, out(app, external, 53, refused), ipv6)
				for _, p := range concat(queries(proxy, external, direct), queries(proxyGID, external, direct),
					queries(app, localhost, direct), []probe{out(app, secondPeer, 53, direct), udp(out(app, secondPeer, 53, datagrams))}) {
					w.probe(t, p, ipv6)
				}
				inbound := []probe{in(onlyIPv6(podIP), 8080, dropped), in(onlyIPv6(podIP), 15006, dropped), in(onlyIPv6(podIP), 15020, dropped)}
				if fenced { // probe would ping the pod after a packet that is dropped
					w.expectSilence(t, append(inbound, udp(in(onlyIPv6(podIP), 53, dropped))))
					return
				}
				for _, p := range append(inbound, udp(in(podIP, 53, direct))) {
					w.probe(t, p, ipv6)
				}
			})
		})
	}
}

// TestRouterAdvertisement has a neighbour on the pod's bridge advertise a prefix. The
// kernel gives the pod an address and a default route, by which nothing leaves or enters
// past the proxy.
func TestRouterAdvertisement(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		const prefix = "2001:db8:5::"
		pod, neighbour, node := lab.StartHost(t), lab.StartHost(t), lab.StartHost(t)
		for i, host := range []*lab.Host{pod, neighbour} {
			lab.Check(t, lab.Link(lab.Interface{Host: host, Name: "eth0", Addresses: []string{fmt.Sprintf("10.77.0.%d/24", i+2)}},
				lab.Interface{Host: node, Name: fmt.Sprintf("port%d", i)}))
		}
		run("ip", strings.Fields("link add br0 up type bridge mcast_snooping 0")...)(t, node)
		run("ip", strings.Fields("link set port0 master br0")...)(t, node)
		run("ip", strings.Fields("link set port1 master br0")...)(t, node)
		lab.Check(t, neighbour.AddAddresses("eth0", prefix+"1/64"))

		decision, err := lab.Decide(injected(nil, nil), config.DefaultSettings(), netip.MustParseAddr("10.77.0.2"))
		lab.Check(t, err)
		rs := capture.Rules(decision.Intent)
		netns := open(t, pod, backend)
		lab.Check(t, netns.Apply(rs))
		w := world{pod: pod, peer: neighbour}
		w.serve(t, pod, "tcp", 8080, direct)
		w.serve(t, neighbour, "tcp", 80, direct)

		var own netip.Addr
		lab.Eventually(t, func() error {
			_ = neighbour.Do(func() error { return advertise(netip.MustParsePrefix(prefix + "/64")) }) // without a source before its own address is ready
			if own = addressIn(t, pod, netip.MustParsePrefix(prefix+"/64")); !own.IsValid() {
				return errors.New("the pod has no address of the prefix")
			}
			return nil
		})
		lab.Check(t, pod.WaitForIPv6())
		w.probe(t, out(app, dst{ipv6: prefix + "1"}, 80, refused), ipv6)
		w.probe(t, out(proxy, dst{ipv6: prefix + "1"}, 80, direct), ipv6)
		w.probe(t, in(dst{ipv6: own.String()}, 8080, dropped), ipv6)
		netns.expectSame(rs)
	})
}

// advertise sends a router advertisement (RFC 4861) by eth0 of the calling thread's
// namespace.
func advertise(prefix netip.Prefix) error {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	message := append([]byte{134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0}, // a router for half an hour
		3, 4, byte(prefix.Bits()), 0xc0, 0, 0, 0x07, 0x08, 0, 0, 0x07, 0x08, 0, 0, 0, 0) // a prefix, on the link and for addresses
	message = append(message, prefix.Addr().AsSlice()...)
	to := &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(eth0.Index)}
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_MULTICAST_HOPS, 255), unix.Sendto(fd, message, 0, to))
}

// addressIn returns the host's address in a prefix, if it has one.
func addressIn(t *testing.T, host *lab.Host, prefix netip.Prefix) (found netip.Addr) {
	t.Helper()
	lab.Check(t, host.Do(func() error {
		addresses, err := net.InterfaceAddrs()
		for _, a := range addresses {
			if own, err := netip.ParsePrefix(a.String()); err == nil && prefix.Contains(own.Addr()) {
				found = own.Addr()
			}
		}
		return err
	}))
	return found
}
