// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestNeverAnother has pods end while they are examined, and namespaces
// replaced by others: none but the pod's own is ever touched.
func TestNeverAnother(t *testing.T) {
	t.Parallel()
	t.Run("the sandbox has ended", func(t *testing.T) {
		n := newNode()
		p := n.run(t, "web")
		n.ended["web"] = true
		g := n.newGuard(t, options{})
		g.finds(t, report.Unknown)
		if state := p.rules(t); state != (netfilter.State{}) {
			t.Errorf("it holds %+v", state)
		}
	})
	for name, tt := range map[string]struct {
		when func(n *node, replace func())
		want report.Code
	}{
		"another namespace is at its path": {func(n *node, replace func()) {
			n.reading = func() { replace(); n.ended["web"] = true }
		}, report.Unknown},
		"another namespace comes to its path": {func(n *node, replace func()) { n.confirm = replace }, report.Uncaptured},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			p, other := n.run(t, "web"), lab.StartHost(t)
			lab.Check(t, other.AddAddresses("lo", podAddress+"/32"))
			tt.when(n, func() { bind(t, other, p.sandbox.NetNS) })
			g := n.newGuard(t, options{})
			g.finds(t, tt.want)
			for _, host := range []*lab.Host{p.host, other} {
				if state := (&pod{host: host}).rules(t); state != (netfilter.State{}) {
					t.Errorf("%s holds %+v", host.Path(), state)
				}
			}
		})
	}
	t.Run("the namespace is gone", func(t *testing.T) {
		n := newNode()
		p := n.run(t, "web")
		sandbox := p.sandbox
		sandbox.NetNS += "-gone"
		n.sandboxes["web"] = sandbox
		g := n.newGuard(t, options{})
		g.finds(t, report.Unknown)
	})
}

// bind makes a path lead to the namespace of a host.
func bind(t *testing.T, host *lab.Host, path string) {
	t.Helper()
	lab.Check(t, errors.Join(unix.Unmount(path, unix.MNT_DETACH), unix.Mount(host.Path(), path, "", unix.MS_BIND, "")))
}

// TestEndingPods has the guard examine pods whose DEL has removed their rules, before the
// runtime leaves them out of its list: no policy reports, repairs or evicts them.
func TestEndingPods(t *testing.T) {
	t.Parallel()
	for _, policy := range guard.Policies() {
		t.Run(string(policy), func(t *testing.T) {
			n := newNode()
			conn := n.listen(t)
			p := n.run(t, "web")
			n.own("web", "ReplicaSet")
			p.capture(t, nil)
			g := n.newGuard(t, options{policy: policy})
			g.round(t)
			p.nft(t, "delete", "table", "inet", "capture-cni")
			n.ended["web"] = true
			g.finds(t, report.Captured)
			if records := receive(t, conn); len(records) > 0 {
				t.Errorf("sent %v", records)
			}
			if state := p.rules(t); state != (netfilter.State{}) {
				t.Errorf("it holds %+v", state)
			}
		})
	}
}
