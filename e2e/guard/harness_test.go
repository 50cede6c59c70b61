// SPDX-License-Identifier: Apache-2.0

// Package guard tests the guard with pods in real network namespaces.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// node is a runtime and an agent at once: what both know of pods.
type node struct {
	mu        sync.Mutex
	sandboxes map[string]cri.Sandbox
	pods      map[string]*corev1.Pod // by name, which is the sandbox's id, too
	ended     map[string]bool        // sandboxes that end while they are examined
	reads     int                    // requests of the guard
	unchanged int                    // of these, how many were answered so
	reading   func()                 // called at each read
	confirm   func()                 // called at each request whether a sandbox runs
	socket    string                 // of the agent, for records; empty for none
	baselines string                 // directory that outlives a guard; empty for none
	netConf   string                 // of the plugin
	log       strings.Builder        // of its guards
}

func newNode() *node {
	return &node{sandboxes: map[string]cri.Sandbox{}, pods: map[string]*corev1.Pod{}, ended: map[string]bool{}, netConf: `{"excludeNamespaces": ["excluded", "openshift-*"]}`}
}

func (n *node) Sandboxes(context.Context) ([]cri.Sandbox, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.sandboxes)), nil
}

func (n *node) Runs(_ context.Context, sandbox cri.Sandbox) (bool, error) {
	if n.confirm != nil {
		n.confirm()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.ended[sandbox.ID], nil
}

func (n *node) HaveExited(context.Context, cri.Sandbox) (bool, error) { return false, nil }

func (n *node) Listen(context.Context, func(), func()) error { return cri.ErrNoEvents }

const (
	podAddress, peerAddress = "192.0.2.2", "192.0.2.1"
	appPort, inboundPort    = 8080, 15006
	appAddress              = podAddress + ":8080"
)

// pod is one that runs on the node, with a peer that connects to it.
type pod struct {
	host, peer *lab.Host
	sandbox    cri.Sandbox
}

// run starts a meshed, uncaptured pod.
func (n *node) run(t *testing.T, name string) *pod {
	t.Helper()
	lab.RequireRoot(t)
	p := &pod{host: lab.StartHost(t), peer: lab.StartHost(t)}
	lab.Check(t, errors.Join(p.host.AddAddresses("lo"), lab.Link(
		lab.Interface{Host: p.host, Name: "eth0", Addresses: []string{podAddress + "/24"}},
		lab.Interface{Host: p.peer, Name: "eth0", Addresses: []string{peerAddress + "/24"}},
	)))
	p.sandbox = cri.Sandbox{
		ID: name, Namespace: "shop", Name: name, UID: "uid-of-" + name, NetNS: p.host.Path(),
		Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sandboxes[name], n.pods[name] = p.sandbox, meshed(p.sandbox)
	return p
}

func meshed(s cri.Sandbox) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "istio-proxy"}}}}
	pod.Name, pod.Namespace, pod.UID, pod.Annotations = s.Name, s.Namespace, types.UID(s.UID), maps.Clone(s.Annotations)
	return pod
}

// capture applies rules as an ADD does, for a pod with these annotations.
func (p *pod) capture(t *testing.T, annotations map[string]string) {
	t.Helper()
	p.captureBy(t, nftables.Backend{}, annotations)
}

func (p *pod) captureBy(t *testing.T, backend netfilter.Backend, annotations map[string]string) {
	t.Helper()
	pod := meshed(p.sandbox)
	maps.Copy(pod.Annotations, annotations)
	decision, err := lab.Decide(pod, config.DefaultSettings(), netip.MustParseAddr(podAddress))
	lab.Check(t, err)
	p.host.Within(t, func() error { return backend.Apply(t.Context(), capture.Rules(decision.Intent)) })
}

func (p *pod) rules(t *testing.T) (state netfilter.State) {
	t.Helper()
	p.host.Within(t, func() (err error) {
		state, err = netfilter.Inspect(t.Context())
		return err
	})
	return state
}

// options of a guard. The zero value repairs the pods of the node, and asks the node.
type options struct {
	policy  guard.Policy  // InPlace if it is empty
	update  guard.Update  // UpdateNever if it is empty
	runtime guard.Runtime // the node if it is nil
	pods    guard.Pods    // the node if it is nil
}

// nodeGuard is a guard that examines each pod in every round.
type nodeGuard struct {
	*guard.Guard
	metrics *prometheus.Registry
}

// newGuard returns a guard with the node's configuration, sockets and baselines.
func (n *node) newGuard(t *testing.T, o options) nodeGuard {
	t.Helper()
	input, err := config.Read([]byte(n.netConf))
	lab.Check(t, err)
	conf, _, err := input.NetConf()
	lab.Check(t, err)
	settings := guard.Settings{Conf: conf, Policy: cmp.Or(o.policy, guard.InPlace), Update: o.update, Socket: n.socket, BaselineDir: cmp.Or(n.baselines, t.TempDir())}
	settings.HistoryDir = telemetry.HistoryDirectory(n.socket)
	if o.runtime == nil {
		o.runtime = n
	}
	if o.pods == nil {
		o.pods = n
	}
	metrics := prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), n), nil))
	return nodeGuard{guard.New(settings, o.runtime, o.pods, log, metrics), metrics}
}

// Write implements io.Writer for the log of its guards.
func (n *node) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(line)
}

// finds has the guard examine all pods, and wants one pod in each of these states.
func (g nodeGuard) finds(t *testing.T, want ...report.Code) {
	t.Helper()
	g.round(t)
	g.expect(t, want...)
}

// examining lets one guard of this process examine at a time: the time-outs of its requests
// to the kernel are for a machine on which it does not compete with seven others.
var examining sync.Mutex

// round has the guard examine all pods, in as many slices of time as that takes.
func (g nodeGuard) round(t *testing.T) {
	t.Helper()
	examining.Lock()
	defer examining.Unlock()
	for !g.Round(t.Context()) {
		lab.Check(t, t.Context().Err())
	}
}

// expect wants one pod in each of these states by the last round, and no other pod.
func (g nodeGuard) expect(t *testing.T, want ...report.Code) {
	t.Helper()
	var got []report.Code
	for labels, count := range g.series(t, "pods") {
		_, state, _ := strings.Cut(labels, " ")
		got = append(got, slices.Repeat([]report.Code{report.Code(state)}, int(count))...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the pods are %q, want %q", got, want)
	}
}

// series returns the values of a metric, by the values of its labels.
func (g nodeGuard) series(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := g.metrics.Gather()
	lab.Check(t, err)
	series := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "capture_cni_"+name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			series[strings.Join(labels, " ")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return series
}

// echo answers each byte of a connection to a port of a host, as an application does or,
// with a transparent socket, a proxy.
func echo(t *testing.T, host *lab.Host, port int, control func(network, address string, c syscall.RawConn) error) {
	t.Helper()
	go echoAll(listen(t, host, port, control))
}

// listen listens at a port of a host until the test ends.
func listen(t *testing.T, host *lab.Host, port int, control func(network, address string, c syscall.RawConn) error) (listener net.Listener) {
	t.Helper()
	config := net.ListenConfig{Control: control}
	host.Within(t, func() (err error) {
		listener, err = config.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// echoAll answers each byte of all connections until the listener is closed.
func echoAll(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// dial connects from a host, until the test ends.
func dial(t *testing.T, host *lab.Host, to string) *net.TCPConn {
	t.Helper()
	conn, err := connect(host, to)
	lab.Check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

func connect(host *lab.Host, to string) (conn net.Conn, err error) {
	err = host.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", to, 20*time.Second)
		return err
	})
	return conn, err
}

// reach connects for one byte.
func reach(host *lab.Host, to string) error {
	conn, err := connect(host, to)
	if err != nil {
		return err
	}
	return errors.Join(works(conn), conn.Close())
}

// works sends a byte and wants it back.
func works(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte{'.'}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}
