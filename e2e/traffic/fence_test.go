// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// fencedPod is an Istio pod whose application has no capability.
func fencedPod(annotations, env map[string]string) *corev1.Pod {
	pod := fence(injected(spelled(annotations), env))
	if pod.Annotations["sidecar.istio.io/interceptionMode"] != "TPROXY" { // which Istio's proxy needs to be root for
		pod.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(proxy.UID))}
	}
	return pod
}

func fence(pod *corev1.Pod) *corev1.Pod {
	if pod.Annotations["capture-cni.io/fence"] == "" {
		pod.Annotations["capture-cni.io/fence"] = "true"
	}
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsUser: new(int64(app.UID)), RunAsGroup: new(int64(app.GID)), AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	return pod
}

func onlyIPv6(d dst) dst { return dst{"", d[ipv6]} }

// behindFence is what every fenced pod with a dual-stack proxy meets.
var behindFence = []probe{
	out(app, external, 80, outbound), out(app, external, 53, outbound), out(app, external, 15020, direct), in(podIP, 8080, inbound),
	in(podIP, 15006, inbound), in(podIP, 15020, direct), in(podIP, 15008, direct), out(proxy, external, 80, direct), out(proxy, podIP, 15008, direct),
	udp(out(proxy, external, 53, direct)), udp(out(app, external, 53, refused)), udp(out(app, external, 15020, refused)), udp(out(app, secondPeer, 80, refused)),
	udp(in(podIP, 8080, dropped)), udp(in(podIP, 15020, dropped)), udp(in(secondIP, 15008, dropped)),
	out(app, localhost, 8080, direct), out(app, podIP, 8080, direct), udp(out(app, localhost, 53, direct)), udp(out(app, podIP, 8080, direct)),
	{by: proxy, from: proxySource, to: podIP, port: 8080, want: direct},
}

var fenceScenarios = []scenario{
	{
		name: "redirect", probes: append(slices.Clone(behindFence), out(proxy, podIP, 8080, inbound), out(proxyUID, external, 80, direct),
			out(proxyGID, external, 80, refused), udp(out(proxyGID, external, 80, refused))),
	},
	{
		name: "tproxy", annotations: map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"},
		probes: append(slices.Clone(behindFence), out(proxyGID, external, 80, direct), udp(out(proxyGID, external, 80, direct))),
	},
	{
		name: "a rerouted interface", annotations: map[string]string{
			"istio.io/reroute-virtual-interfaces": "eth0", "includeOutboundIPRanges": "", "capture-cni.io/fence-allow": "in:tcp:8081@0.0.0.0/0,in:tcp:8081@::/0",
		},
		probes: []probe{in(podIP, 8080, dropped), in(podIP, 8081, direct), in(podIP, 15020, direct), in(podIP, 15006, inbound)},
	},
	{
		name: "excluded and included", annotations: map[string]string{
			"excludeOutboundPorts": "8080", "excludeInboundPorts": "8081", "includeOutboundIPRanges": included[ipv4] + "/32," + included[ipv6] + "/128",
		},
		probes: []probe{
			out(app, external, 8080, direct), udp(out(app, external, 8080, refused)), out(app, external, 80, refused), out(app, included, 80, outbound),
			in(podIP, 8081, direct), udp(in(podIP, 8081, dropped)), in(podIP, 8080, inbound),
		},
	},
	{
		name: "nothing captured inbound", annotations: map[string]string{"includeInboundPorts": "", "excludeInboundPorts": "8081"},
		probes: []probe{in(podIP, 8080, dropped), in(podIP, 15020, dropped), out(app, external, 80, outbound), out(app, podIP, 8080, direct)},
	},
	{
		name: "openings", annotations: map[string]string{
			"includeOutboundIPRanges": "", "includeInboundPorts": "15006", "capture-cni.io/fence-allow": "out:udp:53@" + external[ipv4] + "/32,out:udp:53@" +
				external[ipv6] + "/128,out:tcp:80@10.77.0.0/16,out:tcp:80@fd77::/32,in:udp:8080@0.0.0.0/0,in:udp:8080@::/0,in:tcp:8080-8081@0.0.0.0/0,in:tcp:8080-8081@::/0",
		},
		probes: []probe{
			udp(out(app, external, 53, direct)), udp(out(app, external, 80, refused)), udp(out(app, excluded, 53, refused)), out(app, external, 80, direct),
			out(app, external, 53, refused), out(app, excluded, 80, refused), udp(in(podIP, 8080, direct)), udp(in(podIP, 15020, dropped)),
			in(podIP, 8080, direct), in(podIP, 8081, direct), in(podIP, 15020, dropped),
		},
	},
	{
		name: "DNS", env: map[string]string{"ISTIO_META_DNS_CAPTURE": "true"},
		probes: []probe{
			udp(out(app, external, 53, resolver)), out(app, external, 53, resolver), udp(out(app, localhost, 53, resolver)), udp(out(proxy, external, 53, direct)),
			udp(out(app, external, 80, refused)),
		},
	},
	{
		name: "IPv6 is not captured", env: map[string]string{"ISTIO_DUAL_STACK": "false"},
		annotations: map[string]string{"capture-cni.io/fence-allow": "out:tcp:53@" + external[ipv6] + "/128,in:tcp:8081@::/0"},
		probes: []probe{
			out(app, onlyIPv6(external), 80, refused), in(onlyIPv6(podIP), 8080, dropped), out(proxy, onlyIPv6(external), 80, direct),
			out(app, onlyIPv6(external), 15020, direct), udp(out(app, onlyIPv6(external), 53, refused)), out(app, onlyIPv4(external), 80, outbound),
			out(app, onlyIPv6(podIP), 8080, direct), out(app, onlyIPv6(external), 53, direct), in(onlyIPv6(podIP), 8081, direct),
		},
	},
}

// TestFence proves the fence by packets.
func TestFence(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		var probes []probe
		for _, s := range fenceScenarios {
			probes = append(probes, s.probes...)
		}
		w := newWorld(t, ports(probes), istioMesh)
		for _, s := range fenceScenarios {
			t.Run(s.name, func(t *testing.T) {
				env := map[string]string{"ISTIO_DUAL_STACK": "true"}
				for name, value := range s.env {
					env[name] = value
				}
				rs := decide(t, fencedPod(s.annotations, env), config.DefaultSettings())
				w.capture(t, backend, rs)
				isDropped := func(p probe) bool { return p.want == dropped }
				w.probeAll(t, slices.DeleteFunc(slices.Clone(s.probes), isDropped)...)
				w.expectSilence(t, slices.DeleteFunc(slices.Clone(s.probes), func(p probe) bool { return !isDropped(p) }))
				var pings sync.WaitGroup
				for _, f := range bothFamilies {
					pings.Go(func() { w.ping(t, rs, app, external, f, false) })
					pings.Go(func() { w.ping(t, rs, app, podIP, f, true) })
					pings.Go(func() { w.ping(t, rs, proxy, external, f, true) })
				}
				pings.Wait()
			})
		}
	})
}

// TestFenceUntracked has another program's rules keep all packets from conntrack, so that nat sees none.
// The fence lets none of them pass to another host or from it.
func TestFenceUntracked(t *testing.T) {
	t.Parallel()
	probes := []probe{
		out(app, external, 80, refused), udp(out(app, external, 80, refused)), udp(out(app, external, 53, refused)),
		out(app, localhost, 8080, direct), udp(out(app, localhost, 53, direct)),
	}
	silent := []probe{in(podIP, 8080, dropped), udp(in(podIP, 8080, dropped)), udp(in(podIP, 15020, dropped))}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newWorld(t, ports(slices.Concat(probes, silent)), istioMesh)
		rs := decide(t, fencedPod(nil, map[string]string{"ISTIO_DUAL_STACK": "true"}), config.DefaultSettings())
		lab.Check(t, open(t, w.pod, backend).Apply(rs))
		w.pod.Load(t, `table inet untracked {
			chain prerouting { type filter hook prerouting priority raw; notrack; }
			chain output { type filter hook output priority raw; notrack; }
		}`)
		w.probeAll(t, probes...)
		w.expectSilence(t, silent)
		application, err := w.pod.Start(app)
		lab.Check(t, err)
		defer application.Close()
		outside, err := w.peer.Start(rootUser)
		lab.Check(t, err)
		defer outside.Close()
		for _, f := range bothFamilies { // its answer would be refused, too, so that the peer could not tell
			from, at := netip.AddrPortFrom(netip.MustParseAddr(external[f]), 5000), netip.AddrPortFrom(netip.MustParseAddr(podIP[f]), 5000)
			w.expectNoDatagram(t, backend, sendDatagram(t, application, at, at, ""), from, f.String(), func() { sendDatagram(t, outside, from, at, "") })
		}
	})
}

var nameserver = dst{"10.96.0.10", ""} // of the page's pods

// fenceExamples are the pods of the page, each with what its packets meet.
var fenceExamples = []struct {
	name   string
	probes []probe
	silent []probe
}{
	{
		"an agent's sandbox", []probe{
			out(app, external, 80, outbound), out(app, external, 53, resolver), udp(out(app, external, 53, resolver)), udp(out(app, external, 80, refused)),
			out(app, localhost, 80, direct), out(sidecarProxy, external, 80, direct), udp(out(sidecarProxy, external, 53, direct)),
		}, []probe{in(podIP, 80, dropped), udp(in(podIP, 80, dropped))},
	},
	{
		"enforce-redirect", []probe{
			out(app, external, 80, outbound), out(app, nameserver, 53, direct), udp(out(app, nameserver, 53, direct)), udp(out(app, nameserver, 80, refused)),
			udp(out(app, external, 53, refused)), out(proxy, external, 80, direct), in(onlyIPv4(podIP), 8080, direct),
		}, []probe{in(podIP, 80, dropped), in(onlyIPv6(podIP), 8080, dropped), udp(in(podIP, 8080, dropped))},
	},
	{
		"Istio without QUIC", []probe{
			out(app, onlyIPv4(external), 443, outbound), out(app, onlyIPv6(external), 443, refused), udp(out(app, external, 443, refused)),
			udp(out(app, nameserver, 53, direct)), udp(out(app, external, 53, refused)), out(proxy, external, 443, direct), udp(out(proxy, external, 443, direct)),
			in(onlyIPv4(podIP), 8080, inbound), in(podIP, 15021, direct),
		}, []probe{in(onlyIPv6(podIP), 8080, dropped), udp(in(podIP, 443, dropped))},
	},
}

// TestFenceExamples captures the pods of the reference's page as they are written. Istio's
// has the sidecar that the injector adds.
func TestFenceExamples(t *testing.T) {
	t.Parallel()
	pods := examplesOf(t, "fence.md", len(fenceExamples))
	istio, sidecar := pods[2], fencedPod(nil, nil)
	maps.Copy(istio.Annotations, sidecar.Annotations)
	istio.Spec.Containers = append(istio.Spec.Containers, sidecar.Spec.Containers[1])
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for i, example := range fenceExamples {
			t.Run(example.name, func(t *testing.T) {
				decision, err := lab.Decide(pods[i], config.DefaultSettings(), podAddresses()...)
				lab.Check(t, err)
				mesh := istioMesh
				mesh.ProxyUID, mesh.ProxyGID, mesh.OutboundPort = decision.Intent.ProxyUID, decision.Intent.ProxyUID, decision.Intent.OutboundPort
				w := newWorld(t, ports(slices.Concat(example.probes, example.silent)), mesh)
				lab.Check(t, w.peer.AddAddresses("lo", nameserver[ipv4]+"/32"))
				w.capture(t, backend, decision.Rules)
				w.probeAll(t, example.probes...)
				w.expectSilence(t, example.silent)
				for _, f := range bothFamilies {
					w.ping(t, decision.Rules, app, external, f, false)
				}
			})
		}
	})
}

// connect makes a connection of another host, which the world's servers can answer.
func (w world) connect(c lab.Connection) (lab.Reply, error) {
	if w.servers != nil {
		return w.servers.Ask(w.peer, c)
	}
	replies, err := w.peer.AskAll([]lab.Connection{c})
	if err != nil {
		return lab.Reply{}, err
	}
	return replies[0], nil
}

// expectSilence expects no answer, within the time that one takes many times over.
func (w world) expectSilence(t *testing.T, probes []probe) {
	t.Helper()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, p := range probes {
		for _, to := range p.to {
			if to == "" {
				continue
			}
			c := lab.Connection{Network: map[bool]string{false: "tcp", true: "udp"}[p.udp], Limit: time.Second}
			c.To = netip.AddrPortFrom(netip.MustParseAddr(to), uint16(p.port))
			waiting.Go(func() {
				reply, err := w.connect(c)
				if err != nil || !isTimeout(reply.Err) {
					t.Errorf("%s %s: answered by %+v, %v", c.Network, c.To, reply, err)
				}
			})
		}
	}
}

// ping expects an answer to an echo request, or that the fence refuses it.
func (w world) ping(t *testing.T, rs capture.Ruleset, by lab.Owner, to dst, f family, answered bool) {
	t.Helper()
	limit := time.Second
	if answered {
		limit = lab.Patience
	}
	err := w.pod.Ping(by, netip.MustParseAddr(to[f]), limit)
	refused := errors.Is(err, unix.EPERM) || f == ipv6 && err == unix.EAGAIN // by IPv6, the kernel does not tell the process
	if answered && err != nil || !answered && !refused {
		t.Errorf("%s: a ping to %s by uid %d: got %v, answered %v", f, to[f], by.UID, err, answered)
	}
	packet := trace.Packet{Protocol: [...]capture.Protocol{capture.ICMP, capture.ICMPv6}[f], Interface: "eth0", Owner: &trace.Owner{UID: uint32(by.UID), GID: uint32(by.GID)}}
	packet.To = netip.AddrPortFrom(netip.MustParseAddr(to[f]), 0)
	if to == podIP {
		packet.Interface = "lo"
	}
	if traced := trace.Of(rs, packet); (traced.Verdict != capture.Drop) != answered {
		t.Errorf("answered %v, and traced as\n%s", answered, traced.Text())
	}
}

// TestFenceEndsConnections repairs a pod that lost its fence: what began without it ends.
func TestFenceEndsConnections(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	w := newWorld(t, []int{80}, istioMesh)
	rs := decide(t, fencedPod(nil, map[string]string{"ISTIO_DUAL_STACK": "true"}), config.DefaultSettings())
	netns := open(t, w.pod, config.NFTables)
	for _, f := range bothFamilies {
		var listener net.Listener
		w.peer.Within(t, func() (err error) {
			listener, err = net.Listen("tcp", net.JoinHostPort(external[f], "4444"))
			return err
		})
		defer listener.Close()
		conn, err := w.pod.Dial(app, "", listener.Addr().String())
		lab.Check(t, err)
		defer conn.Close()
		served, err := listener.Accept()
		lab.Check(t, err)
		defer served.Close()
		lost, err := kernel.Replace(t.Context(), netns.Namespace, rs)
		if err != nil || lost == nil {
			t.Fatalf("%s: the repair says %v, %v", f, lost, err)
		}
		_, err = conn.Write([]byte("data"))
		lab.Check(t, err)
		lab.Check(t, conn.SetReadDeadline(time.Now().Add(lab.Patience)))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: the connection goes on: %v", f, err)
		}
		lab.Check(t, served.SetReadDeadline(time.Now().Add(100*time.Millisecond))) // the reset came after the data
		if n, err := served.Read(make([]byte, 8)); n > 0 || !isTimeout(err) {
			t.Errorf("%s: %d bytes left the pod, %v", f, n, err)
		}
		lab.Check(t, netns.Namespace.Remove(t.Context()))
	}
}
