// SPDX-License-Identifier: Apache-2.0

// Package search looks for ways around capture: it draws sequences of what processes of a
// pod and hosts outside can do without privilege, and then makes connections that must
// meet the proxy or nothing, and others that must succeed.
package search

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Ports that the rules exempt, or that processes serve in all worlds.
const (
	tunnelPort   = 15008 // inbound, not captured
	excludedPort = 15020 // in both directions, not captured
	probePort    = 15021 // inbound, not captured; served by the application
	appPort      = 9000  // served by the application
	peerPort     = 80    // served by both peers
)

// Addresses in both families. The peer is on eth0, peer2 on net1, and neither forwards.
var (
	podAddresses  = [2][2]netip.Addr{both("10.77.0.2", "fd77::2"), both("10.78.0.2", "fd78::2")}
	peerAddresses = [2][2]netip.Addr{both("10.77.0.1", "fd77::1"), both("10.78.0.1", "fd78::1")}
	localhost     = both("127.0.0.1", "::1")
	proxySource   = both("127.0.0.6", "::6")
)

func both(v4, v6 string) [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
}

// actor is who acts.
type actor int

const (
	app actor = iota
	app2
	proxy
	peer
	peer2
)

func (a actor) String() string { return [...]string{"app", "app2", "proxy", "peer", "peer2"}[a] }

// setting is what the worlds differ in.
type setting struct {
	backend     config.Backend
	transparent bool
	excluded    bool // net1 is an excluded interface
	cookies     bool // the pod answers each SYN with a cookie
	dropInvalid bool
	mesh        config.MeshName // by whose keys the pod is captured; those of others than Istio have no excluded interface

	fenced bool
	egress bool // only outbound connections are captured
	ipv4   bool // IPv6 is not captured
	dns    bool // queries are captured
}

func (s setting) String() string {
	text := string(s.mesh) + " " + string(s.backend) + " " + s.mode()
	for _, option := range []struct {
		on   bool
		name string
	}{
		{s.excluded, ", net1 excluded"},
		{s.cookies, ", tcp_syncookies=2"},
		{s.dropInvalid, ", INVALID_DROP"},
		{s.fenced, ", fenced"},
		{s.egress, ", only outbound"},
		{s.ipv4, ", only IPv4"},
		{s.dns, ", DNS"},
	} {
		if option.on {
			text += option.name
		}
	}
	return text
}

func (s setting) mode() string {
	if s.transparent {
		return "TPROXY"
	}
	return "REDIRECT"
}

// world is a pod and two hosts outside. It serves many sequences, one after the other:
// each has ports of its own.
type world struct {
	setting
	pod       *lab.Host
	processes [5]*lab.Process
	root      *lab.Process // in the pod
	taps      [2]*lab.Tap
	served    map[service]*listener
	answers   [2]map[service]int // sockets that answer datagrams
	ports     config.Mesh        // of the proxy
	last      uint16             // the newest sequence's port
	innocent  uint16             // the newest innocent connection's
	refused   uint64             // packets, when they were last read
	retried   []retry
	broken    bool // a sequence without actions fails
	closers   []func() error
}

// service is a listener that all sequences share.
type service struct {
	by   actor
	port uint16
}

func newWorld(ctx context.Context, s setting) (w *world, err error) {
	w = &world{setting: s, served: map[service]*listener{}, answers: [2]map[service]int{{}, {}}, ports: config.DefaultSettings().Mesh}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("making the world %s: %w", s, err), w.close())
		}
	}()
	hosts, err := w.link()
	if err != nil {
		return w, err
	}
	proxyOwner := lab.Owner{UID: 1337, GID: 1337}
	if s.transparent {
		proxyOwner.UID = 0 // it needs root's capabilities; the group identifies it
	}
	for by, p := range []struct {
		host  *lab.Host
		owner lab.Owner
	}{{w.pod, lab.Owner{UID: 1000, GID: 1000}}, {w.pod, lab.Owner{UID: 2000, GID: 2000}}, {w.pod, proxyOwner}, {hosts[0], lab.Owner{}}, {hosts[1], lab.Owner{}}} {
		if w.processes[by], err = w.start(p.host, p.owner); err != nil {
			return w, err
		}
	}
	if w.root, err = w.start(w.pod, lab.Owner{}); err != nil {
		return w, err
	}
	if err := errors.Join(w.serve(), w.serveDatagrams()); err != nil {
		return w, err
	}
	if err := w.capture(ctx); err != nil {
		return w, err
	}
	return w, w.tap(ctx, hosts)
}

// pod returns the pod, whose proxy has the same uid and ports in every mesh.
func (s setting) pod() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "web"
	sidecar := corev1.Container{Name: "sidecar", SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(1337))}}
	if s.transparent {
		*sidecar.SecurityContext = corev1.SecurityContext{RunAsUser: new(int64(0)), RunAsGroup: new(int64(1337))}
	}
	inbound, excluded := fmt.Sprintf("%d,%d-%d", tunnelPort, excludedPort, probePort), fmt.Sprint(excludedPort)
	switch s.mesh {
	case config.Linkerd:
		pod.Annotations = map[string]string{
			"linkerd.io/proxy-version": "", "config.linkerd.io/proxy-gid": "1337",
			"config.linkerd.io/skip-inbound-ports": inbound, "config.linkerd.io/skip-outbound-ports": excluded,
		}
		sidecar.Name, sidecar.Env = "linkerd-proxy", []corev1.EnvVar{
			{Name: "LINKERD2_PROXY_INBOUND_LISTEN_ADDR", Value: "[::]:15006"}, {Name: "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS", Value: "[::]:15001"},
		}
	case config.Consul:
		pod.Annotations = map[string]string{
			"consul.hashicorp.com/transparent-proxy-status": "", "consul.hashicorp.com/dual-stack": "true",
			"consul.hashicorp.com/redirect-traffic-config": fmt.Sprintf(`{"ProxyUserID": "1337", "ProxyInboundPort": 15006, "ConsulDNSPort": 8600,
				"ExcludeInboundPorts": ["%d", "%d:%d"], "ExcludeOutboundPorts": ["%d"], "ExcludeUIDs": ["5996"]}`, tunnelPort, excludedPort, probePort, excludedPort),
		}
		sidecar.Name = "consul-dataplane"
	case config.Kuma:
		pod.Annotations = map[string]string{
			"kuma.io/sidecar-injected": "true",
			"traffic.kuma.io/transparent-proxy-config": fmt.Sprintf(`{kumaDPUser: 1337, redirect: {dns: {enabled: %v, captureAll: true, port: %d},
				inbound: {excludePorts: [%d, %d, %d]}, outbound: {excludePorts: [%d], excludePortsForUIDs: ["tcp:%d:2001-5000"]}}}`,
				s.dns, dnsPort, tunnelPort, excludedPort, probePort, excludedPort, peerPort),
		}
		sidecar.Name = "kuma-sidecar"
	case config.OwnKeys:
		pod.Annotations = map[string]string{
			"capture-cni.io/proxy": sidecar.Name, "capture-cni.io/inbound-port": "15006", "capture-cni.io/outbound-port": "15001",
			"capture-cni.io/exclude-inbound-ports": inbound, "capture-cni.io/exclude-outbound-ports": excluded,
		}
		if s.egress {
			delete(pod.Annotations, "capture-cni.io/inbound-port")
			delete(pod.Annotations, "capture-cni.io/exclude-inbound-ports")
		}
		if s.dns {
			pod.Annotations["capture-cni.io/dns-port"] = fmt.Sprint(dnsPort)
		}
	default:
		pod.Annotations = map[string]string{
			"sidecar.istio.io/status": "{}", "sidecar.istio.io/interceptionMode": s.mode(),
			"traffic.sidecar.istio.io/excludeOutboundPorts": excluded,
		}
		if s.excluded {
			pod.Annotations["traffic.sidecar.istio.io/excludeInterfaces"] = "net1"
		}
		sidecar.Name, sidecar.Args = "istio-proxy", []string{"proxy", "sidecar"}
		if s.dropInvalid {
			sidecar.Env = []corev1.EnvVar{{Name: "INVALID_DROP", Value: "true"}}
		}
		if s.dns {
			sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"})
		}
	}
	if s.fenced {
		pod.Annotations["capture-cni.io/fence"], pod.Annotations["capture-cni.io/fence-allow"] = "true", openings
	}
	unprivileged := &corev1.SecurityContext{
		RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), AllowPrivilegeEscalation: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	pod.Spec.Containers = []corev1.Container{{Name: "web", SecurityContext: unprivileged}, sidecar}
	return pod
}

// source is where the proxy connects to the application from, under REDIRECT.
func (s setting) source(f int) netip.Addr {
	if s.mesh == config.Istio || s.mesh == config.Kuma {
		return proxySource[f]
	}
	return podAddresses[0][f]
}

// capture applies the rules.
func (w *world) capture(ctx context.Context) (err error) {
	settings := config.DefaultSettings()
	settings.IPv6, settings.Meshes = config.IPv6Always, config.Meshes()
	if w.ipv4 {
		settings.IPv6 = config.IPv6Mesh
	}
	decision, err := lab.Decide(w.setting.pod(), settings, podAddresses[0][:]...)
	if err == nil { // the second peer is the node, whose addresses no wider exception opens
		decision, err = decision.At(podAddresses[0][:], peerAddresses[1][:])
	}
	if err != nil {
		return err
	}
	netns, err := podnet.Open(ctx, w.pod.Path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, netns.Close()) }()
	if err := netns.Apply(ctx, decision.Rules, w.backend); err != nil {
		return err
	}
	return w.pod.WaitForIPv6()
}

func (w *world) close() (err error) {
	for i := len(w.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, w.closers[i]())
	}
	return err
}
