// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestIPv6Policy captures a dual-stack pod under every policy.
func TestIPv6Policy(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newWorld(t, []int{80, 8080}, istioMesh)
		for _, test := range []struct {
			name   string
			policy config.IPv6Policy
			env    map[string]string
			ipv6   string // the process that answers over IPv6
		}{
			{"mesh", config.IPv6Mesh, nil, direct},
			{"mesh, dual stack", config.IPv6Mesh, map[string]string{"ISTIO_DUAL_STACK": "true"}, outbound},
			{"always", config.IPv6Always, nil, outbound},
			{"never, dual stack", config.IPv6Never, map[string]string{"ISTIO_DUAL_STACK": "true"}, direct},
		} {
			t.Run(test.name, func(t *testing.T) {
				settings := config.DefaultSettings()
				settings.IPv6 = test.policy
				rs := decide(t, injected(nil, test.env), settings)
				w.capture(t, backend, rs)
				w.probe(t, out(app, external, 80, outbound), ipv4)
				w.probe(t, out(app, external, 80, test.ipv6), ipv6)
				w.probe(t, out(proxy, external, 80, direct), ipv6)
				inboundIPv6 := map[string]string{direct: direct, outbound: inbound}[test.ipv6]
				w.probe(t, in(podIP, 8080, inboundIPv6), ipv6)
				if has := strings.Contains(loopback(t, w.pod), "::6/128"); has != (rs.IPv6 == capture.Captured) {
					t.Errorf("::6 is on lo: %v, IPv6 is captured: %v", has, rs.IPv6)
				}
			})
		}
	})
}

func TestIPv6Only(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		addresses := []netip.Addr{netip.MustParseAddr("fd77::2"), netip.MustParseAddr("fe80::1")}
		decision, err := lab.Decide(injected(nil, nil), config.DefaultSettings(), addresses...)
		lab.Check(t, err)
		w := newWorld(t, []int{80, 8080}, istioMesh)
		lab.Check(t, open(t, w.pod, backend).Apply(capture.Rules(decision.Intent)))
		w.probe(t, out(app, external, 80, outbound), ipv6)
		w.probe(t, in(podIP, 8080, inbound), ipv6)
		w.probe(t, probe{by: proxy, from: proxySource, to: podIP, port: 8080, want: direct}, ipv6)
	})
}

// TestProxySourceAtOnce has a proxy use its IPv6 address right after ADD.
func TestProxySourceAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		pod := lab.StartHost(t)
		lab.Check(t, pod.AddAddresses("lo"))
		lab.Check(t, open(t, pod, config.NFTables).Namespace.Apply(t.Context(), decide(t, injected(nil, nil), dualStack()), config.NFTables))
		lab.Check(t, pod.Do(func() error {
			listener, err := net.ListenTCP("tcp6", &net.TCPAddr{IP: capture.ProxySourceIPv6.Addr().AsSlice()})
			if err != nil {
				return err
			}
			return listener.Close()
		}))
	}
}

// TestIPv6Later adds a pod's IPv6 address after its ADD. With ISTIO_DUAL_STACK, or Kuma's default, it
// is captured like an address that was there before. Kuma's validation connects to ::6 without one.
func TestIPv6Later(t *testing.T) {
	t.Parallel()
	dual := map[string]string{"ISTIO_DUAL_STACK": "true"}
	for _, asked := range []*corev1.Pod{injected(nil, dual), injected(tproxy(nil), dual), kumaAsked{user: 1337}.pod()} {
		asked.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(app.UID))}
		forEachBackend(t, func(t *testing.T, backend config.Backend) {
			decision, err := lab.Decide(asked, linkerdSettings(), netip.MustParseAddr(podIP[ipv4]), netip.MustParseAddr("fe80::1"))
			lab.Check(t, err)
			if len(decision.Warnings) > 0 {
				t.Errorf("warnings %q", decision.Warnings)
			}
			pod, peer := lab.StartHost(t), lab.StartHost(t)
			lab.Check(t, lab.Link(lab.Interface{Host: pod, Name: "eth0", Addresses: []string{podIP[ipv4] + "/24"}},
				lab.Interface{Host: peer, Name: "eth0", Addresses: []string{external[ipv4] + "/24"}}))
			lab.Check(t, pod.AddAddresses("lo"))
			netns := open(t, pod, backend)
			lab.Check(t, netns.Apply(decision.Rules))
			w := world{pod: pod, peer: peer}
			w.sidecar(t, proxy, istioMesh)
			w.probe(t, probe{by: proxy, from: localhost, to: probeTarget, port: 20000, want: inbound}, ipv6)
			for _, host := range []*lab.Host{pod, peer} {
				w.serve(t, host, "tcp", 80, direct)
				w.serve(t, host, "tcp", 8080, direct)
			}
			lab.Check(t, pod.AddAddresses("eth0", podIP[ipv6]+"/64"))
			lab.Check(t, peer.AddAddresses("eth0", external[ipv6]+"/64"))
			lab.Check(t, errors.Join(pod.WaitForIPv6(), peer.WaitForIPv6()))
			w.probeAll(t, in(podIP, 8080, inbound), out(app, external, 80, outbound), out(proxy, external, 80, direct))
			netns.expectSame(decision.Rules)
		})
	}
}

// TestWithoutIPv6 captures a namespace in which IPv6 is switched off.
func TestWithoutIPv6(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		lab.RequireRoot(t)
		pod, peer := lab.StartHost(t), lab.StartHost(t)
		lab.Check(t, pod.Do(func() error {
			for _, name := range []string{"all", "default", "lo"} {
				if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil {
					return err
				}
			}
			return nil
		}))
		w := world{pod: pod, peer: peer}
		lab.Check(t, lab.Link(lab.Interface{Host: pod, Name: "eth0", Addresses: []string{podIP[ipv4] + "/24"}},
			lab.Interface{Host: peer, Name: "eth0", Addresses: []string{external[ipv4] + "/24"}}))
		w.serve(t, pod, "tcp4", 15001, outbound)
		w.serve(t, pod, "tcp4", 15006, inbound)
		w.serve(t, peer, "tcp4", 80, direct)
		settings := config.DefaultSettings()
		settings.IPv6 = config.IPv6Always
		rs := decide(t, injected(nil, nil), settings)
		netns := open(t, pod, backend)
		lab.Check(t, netns.Apply(rs)) // lo was down before, and is up now
		w.probe(t, out(app, external, 80, outbound), ipv4)
		w.probe(t, in(podIP, 8080, inbound), ipv4)
		netns.expectSame(rs)
	})
}

// TestNobodyListens makes sure that a proxy that is not up means no
// connection, never an uncaptured one.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newWorld(t, []int{80, 8080}, config.Mesh{OutboundPort: 25001, InboundPort: 25006, DNSPort: 25053})
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, nil), dualStack())))
		w.probeAll(t,
			out(app, external, 80, refused), in(podIP, 8080, refused), out(proxy, podIP, 8080, refused),
			out(app, localhost, 8080, direct))
	})
}

// dualStack captures both families.
func dualStack() config.Settings {
	settings := config.DefaultSettings()
	settings.IPv6 = config.IPv6Always
	return settings
}
