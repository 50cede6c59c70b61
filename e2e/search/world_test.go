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
	"os"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
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
}

func (s setting) String() string {
	text := string(s.backend) + " " + s.mode()
	for _, option := range []struct {
		on   bool
		name string
	}{{s.excluded, ", net1 excluded"}, {s.cookies, ", tcp_syncookies=2"}, {s.dropInvalid, ", INVALID_DROP"}} {
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
	mesh      config.Mesh
	last      uint16 // the newest sequence's port
	innocent  uint16 // the newest innocent connection's
	refused   uint64 // packets, when they were last read
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
	w = &world{setting: s, served: map[service]*listener{}, mesh: config.DefaultSettings().Mesh}
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
	if err := w.serve(); err != nil {
		return w, err
	}
	if err := w.capture(ctx); err != nil {
		return w, err
	}
	return w, w.tap(ctx, hosts)
}

func (w *world) start(host *lab.Host, owner lab.Owner) (*lab.Process, error) {
	process, err := host.Start(owner)
	if err == nil {
		w.closers = append(w.closers, func() error { process.Close(); return nil })
	}
	return process, err
}

// link makes the hosts, with time-outs and ports that let many sequences follow each other.
func (w *world) link() (outside [2]*lab.Host, err error) {
	var hosts [3]*lab.Host
	for i := range hosts {
		if hosts[i], err = lab.NewHost(); err != nil {
			return outside, err
		}
		w.closers = append(w.closers, hosts[i].Close)
		if err := hosts[i].AddAddresses("lo"); err != nil {
			return outside, err
		}
	}
	w.pod, outside = hosts[0], [2]*lab.Host{hosts[1], hosts[2]}
	for i, name := range []string{"eth0", "net1"} {
		addresses := func(of [2]netip.Addr) []string { return []string{of[0].String() + "/24", of[1].String() + "/64"} }
		if err := lab.Link(
			lab.Interface{Host: w.pod, Name: name, Addresses: addresses(podAddresses[i])},
			lab.Interface{Host: outside[i], Name: "eth0", Addresses: addresses(peerAddresses[i])}); err != nil {
			return outside, err
		}
		for f := range 2 {
			// The peers can answer both addresses of the pod; over net1, each address can be tried.
			if err := errors.Join(outside[i].AddDefaultRoute(podAddresses[i][f].String()), w.defaultRoute(name, f, peerAddresses[i][f], 100*(i+1))); err != nil {
				return outside, err
			}
		}
	}
	settings := map[string]string{"ipv4/ip_local_port_range": "60000 65000"}
	for _, state := range []string{"syn_sent", "syn_recv", "established", "fin_wait", "close_wait", "last_ack", "time_wait", "close", "unacknowledged", "max_retrans"} {
		settings["netfilter/nf_conntrack_tcp_timeout_"+state] = "10"
	}
	if w.cookies {
		settings["ipv4/tcp_syncookies"] = "2"
	}
	for _, host := range hosts {
		err := host.Do(func() error {
			for key, value := range settings {
				if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(err, host.WaitForIPv6()); err != nil {
			return outside, err
		}
	}
	return outside, nil
}

func (w *world) defaultRoute(name string, f int, gateway netip.Addr, metric int) error {
	family := []string{"-4", "-6"}[f]
	return w.run(exec.Command("ip", family, "route", "add", "default", "via", gateway.String(), "dev", name, "metric", fmt.Sprint(metric)))
}

func (w *world) run(command *exec.Cmd) error {
	return w.pod.Do(func() error {
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("executing %v: %w: %s", command.Args, err, out)
		}
		return nil
	})
}

// capture applies the rules.
func (w *world) capture(ctx context.Context) (err error) {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "web"
	pod.Annotations = map[string]string{
		"sidecar.istio.io/status":                       "{}",
		"sidecar.istio.io/interceptionMode":             w.mode(),
		"traffic.sidecar.istio.io/excludeOutboundPorts": fmt.Sprint(excludedPort),
	}
	if w.excluded {
		pod.Annotations["traffic.sidecar.istio.io/excludeInterfaces"] = "net1"
	}
	sidecar := corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}
	if w.dropInvalid {
		sidecar.Env = []corev1.EnvVar{{Name: "INVALID_DROP", Value: "true"}}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "web"}, sidecar}
	settings := config.DefaultSettings()
	settings.IPv6 = config.IPv6Always
	decision, err := lab.Decide(pod, settings, podAddresses[0][0], podAddresses[0][1])
	if err != nil {
		return err
	}
	netns, err := podnet.Open(ctx, w.pod.Path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, netns.Close()) }()
	if _, err := netns.Apply(ctx, capture.Rules(decision.Intent), w.backend); err != nil {
		return err
	}
	return w.pod.WaitForIPv6()
}

// dscpApp is the class of each packet that is not of the proxy's group.
const dscpApp = 10

// tap makes the pod's packets show outside who sent them.
func (w *world) tap(ctx context.Context, hosts [2]*lab.Host) (err error) {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(fmt.Sprintf(`table inet senders {
	chain output {
		type filter hook output priority -500
		ip dscp set %[1]d
		ip6 dscp set %[1]d
		meta skgid 1337 ip dscp set 0
		meta skgid 1337 ip6 dscp set 0
	}
}`, dscpApp))
	if err := w.run(command); err != nil {
		return err
	}
	for i, host := range hosts {
		if w.taps[i], err = host.Tap("eth0"); err != nil {
			return err
		}
		w.closers = append(w.closers, w.taps[i].Close)
	}
	return nil
}

func (w *world) close() (err error) {
	for i := len(w.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, w.closers[i]())
	}
	return err
}
