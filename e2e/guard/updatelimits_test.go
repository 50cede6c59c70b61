// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestNotUpdated has outdated pods that keep their rules, and why.
func TestNotUpdated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		update guard.Update
		change func(t *testing.T, n *node, p *pod)
		reason string // of a failure
	}{
		"never":         {guard.UpdateNever, func(*testing.T, *node, *pod) {}, ""},
		"newer version": {guard.UpdateRules, func(t *testing.T, _ *node, p *pod) { forgeStamp(t, p, "capture-cni rules v99 ipv4 00") }, ""},
		"faulty edit": {guard.UpdateAnnotations, func(_ *testing.T, n *node, _ *pod) {
			n.pods["web"].Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "http"
		}, ""},
		"no proxy": {guard.UpdateRules, func(_ *testing.T, n *node, _ *pod) {
			n.netConf = `{"mesh": {"outboundPort": 15002}}`
		}, "port 15002"},
		"no proxy for DNS": {guard.UpdateRules, func(_ *testing.T, n *node, _ *pod) {
			n.pods["web"].Spec.Containers[1].Env = []corev1.EnvVar{{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"}}
		}, "port 15053"},
		"no proxy by IPv6": {guard.UpdateRules, func(t *testing.T, n *node, p *pod) {
			n.dualStack(t, p, "REDIRECT")
			n.netConf = `{"mesh": {"outboundPort": 15002}}`
			server, err := p.host.ServeProxy(lab.Owner{UID: 1337, GID: 1337}, "tcp4", ":15002", outboundProxy)
			lab.Check(t, err)
			t.Cleanup(func() { _ = server.Close() })
		}, "port 15002"},
		"ended": {guard.UpdateRules, func(_ *testing.T, n *node, _ *pod) { n.ended["web"] = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode()
			conn := n.listen(t)
			p := n.run(t, "web")
			p.addBy(t, n, config.NFTables, excludes(9000))
			p.serveAll(t)
			tt.change(t, n, p)
			before := p.list(t)
			g := n.newGuard(t, options{update: tt.update})
			for range 3 {
				g.finds(t, report.Outdated)
			}
			if after := p.list(t); after != before {
				t.Errorf("it was changed:\n%s", after)
			}
			if records := receive(t, conn)["web"]; tt.reason != "" && (len(records) != 1 || !strings.Contains(records[0].Message, tt.reason)) {
				t.Errorf("reported %+v, want the failure of the update, by %q", records, tt.reason)
			}
			if failed := g.series(t, "pod_updates_total")["failed"]; failed != map[bool]float64{true: 1}[tt.reason != ""] {
				t.Errorf("counted %v failures", failed)
			}
		})
	}
}

// TestEditedAnnotations edits a running pod. Only with the value for it, the rules are those of a
// pod that was made so, and follow each later edit; what can't be followed is reported.
func TestEditedAnnotations(t *testing.T) {
	t.Parallel()
	const excluded, mode = "traffic.sidecar.istio.io/excludeInboundPorts", "sidecar.istio.io/interceptionMode"
	n := newNode()
	p := n.run(t, "web")
	p.add(t, n)
	p.serveAll(t)
	reaches := func(want string) {
		t.Helper()
		if answer, err := p.peer.Ask(lab.Owner{}, "tcp", "", appAddress); err != nil || answer.Server != want {
			t.Errorf("a connection reaches %q, %v; want %q", answer.Server, err, want)
		}
	}
	n.pods["web"].Annotations[excluded] = fmt.Sprint(appPort)
	n.newGuard(t, options{update: guard.UpdateRules}).finds(t, report.Changed)
	reaches(inboundProxy)
	g := n.newGuard(t, options{update: guard.UpdateAnnotations})
	g.updates(t)
	reaches(application)
	p.holdsWhatADDInstalls(t, n)
	n.pods["web"].Annotations[mode] = "NONE"
	g.finds(t, report.Changed)
	n.newGuard(t, options{update: guard.UpdateAnnotations}).finds(t, report.Changed)
	delete(n.pods["web"].Annotations, excluded)
	again := n.newGuard(t, options{update: guard.UpdateAnnotations})
	again.finds(t, report.Outdated)
	again.finds(t, report.Captured)
	again.finds(t, report.Changed)
	reaches(inboundProxy)
}

// TestFencedUpdates updates a fenced pod, whose annotations were edited as well. No datagram passes the
// fence meanwhile, no edit opens it, and connections through the proxy stay.
func TestFencedUpdates(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	n.dualStack(t, p, "REDIRECT")
	pod := n.fence(p)
	p.addBy(t, n, config.NFTables, excludes(9000))
	targets := p.proxied(t, "REDIRECT")
	open := dial(t, p.peer, appAddress)
	server, client := packets(t, p.peer, echoPort), packets(t, p.host, 0)
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(peerAddress), echoPort))
	speaking := append(meets(t, targets), speak(t, speakers{{what: "datagrams", speak: func() error {
		_, _ = client.WriteTo([]byte{'.'}, to) // the fence refuses it
		return nil
	}}})...)
	pod.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = fmt.Sprint(outsidePort)
	for i := range 5 {
		g := n.updater(t, guard.UpdateAnnotations, 9010+i)
		g.finds(t, report.Outdated)
		g.finds(t, report.Captured)
		g.finds(t, report.Changed)
		speaking.wait(t)
		lab.Check(t, works(open))
	}
	lab.Check(t, server.SetReadDeadline(time.Now()))
	if _, from, err := server.ReadFrom(make([]byte, 1)); err == nil {
		t.Errorf("a datagram passed the fence from %s", from)
	}
}

// fence gives the pod a fence, and its application the capabilities and the user that this needs.
func (n *node) fence(p *pod) *corev1.Pod {
	p.sandbox.Annotations["capture-cni.io/fence"] = "true"
	n.sandboxes[p.sandbox.ID] = p.sandbox
	pod := meshed(p.sandbox)
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1000)), AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	pod.Spec.Containers[1].Env = n.pods[p.sandbox.ID].Spec.Containers[1].Env
	n.pods[p.sandbox.ID] = pod
	return pod
}

// packets listens for datagrams at a port of a host until the test ends.
func packets(t *testing.T, host *lab.Host, port int) (conn net.PacketConn) {
	t.Helper()
	host.Within(t, func() (err error) {
		conn, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", port))
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
