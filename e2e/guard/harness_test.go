// SPDX-License-Identifier: Apache-2.0

// Package guard tests the guard with pods in real network namespaces.
package guard

import (
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
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/terms"
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
	exited    map[string]bool        // sandboxes whose containers have exited
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
	return &node{sandboxes: map[string]cri.Sandbox{}, pods: map[string]*corev1.Pod{}, ended: map[string]bool{}, exited: map[string]bool{}, netConf: `{"excludeNamespaces": ["excluded", "openshift-*"]}`}
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

func (n *node) HaveExited(_ context.Context, sandbox cri.Sandbox) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.exited[sandbox.ID], nil
}

func (n *node) Listen(context.Context, func(), func()) error { return cri.ErrNoEvents }

const (
	podAddress, peerAddress = "192.0.2.2", "192.0.2.1"
	appPort, inboundPort    = 8080, 15006
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
	lab.Check(t, p.host.Do(func() error { return backend.Apply(t.Context(), capture.Rules(decision.Intent)) }))
}

func (p *pod) rules(t *testing.T) (state netfilter.State) {
	t.Helper()
	lab.Check(t, p.host.Do(func() (err error) {
		state, err = netfilter.Inspect(t.Context())
		return err
	}))
	return state
}

// keeper makes a guard of the node that examines each pod in every round.
func (n *node) keeper(t *testing.T, policy guard.Policy) (*guard.Guard, *prometheus.Registry) {
	t.Helper()
	return n.keeperOf(t, n, guard.Settings{Policy: policy})
}

// keeperOf makes one that has the pods of the node from a runtime of its own.
func (n *node) keeperOf(t *testing.T, runtime guard.Runtime, settings guard.Settings) (*guard.Guard, *prometheus.Registry) {
	t.Helper()
	return n.keeperAsking(t, n, runtime, settings)
}

// keeperAsking makes one that asks another agent.
func (n *node) keeperAsking(t *testing.T, pods guard.Pods, runtime guard.Runtime, settings guard.Settings) (*guard.Guard, *prometheus.Registry) {
	t.Helper()
	input, err := config.Read([]byte(n.netConf))
	lab.Check(t, err)
	settings.Conf, _, err = input.NetConf()
	lab.Check(t, err)
	settings.Socket, settings.BaselineDir = n.socket, n.baselines
	if n.socket != "" {
		settings.HistoryDir = history.Directory(n.socket)
	}
	registry := prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(io.MultiWriter(testWriter{t}, n), nil))
	return guard.New(settings, runtime, pods, log, registry), registry
}

// Write implements io.Writer for the log of its guards.
func (n *node) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(line)
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(line []byte) (int, error) {
	w.t.Logf("%s", line)
	return len(line), nil
}

// expect wants this many pods in a state, and none in any other.
func expect(t *testing.T, registry *prometheus.Registry, want map[terms.State]float64) {
	t.Helper()
	families, err := registry.Gather()
	lab.Check(t, err)
	for _, family := range families {
		if family.GetName() != "capture_cni_pods" {
			continue
		}
		got := map[terms.State]float64{} // of all meshes
		for _, metric := range family.GetMetric() {
			got[terms.State(metric.GetLabel()[1].GetValue())] += metric.GetGauge().GetValue()
		}
		for state, count := range got {
			if count != want[state] {
				t.Errorf("%v pods are %s, want %v", count, state, want[state])
			}
		}
	}
}

// wholeRound has the guard examine all pods that are due, in as many slices of
// time as that takes.
func wholeRound(t *testing.T, keeper *guard.Guard) {
	t.Helper()
	for !keeper.Round(t.Context()) {
		lab.Check(t, t.Context().Err())
	}
}

// echo answers each byte of a connection, as the pod's application or its proxy.
func (p *pod) echo(t *testing.T, port uint16) {
	t.Helper()
	var listener net.Listener
	lab.Check(t, p.host.Do(func() (err error) {
		config := net.ListenConfig{Control: lab.Transparent}
		listener, err = config.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	}))
	t.Cleanup(func() { _ = listener.Close() })
	go echoAll(listener)
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

// dial connects to the application from outside, until the test ends.
func (p *pod) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := p.connect()
	lab.Check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (p *pod) connect() (conn net.Conn, err error) {
	err = p.peer.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", fmt.Sprintf("%s:%d", podAddress, appPort), 10*time.Second)
		return err
	})
	return conn, err
}

// reach connects to the application for one byte.
func (p *pod) reach() error {
	conn, err := p.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	return works(conn)
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
