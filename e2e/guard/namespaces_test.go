// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestNeverAnother has pods end while they are examined, and namespaces
// replaced by others: none but the pod's own is ever touched.
func TestNeverAnother(t *testing.T) {
	t.Run("the sandbox has ended", func(t *testing.T) {
		n := newNode()
		p := n.run(t, "web")
		n.ended["web"] = true
		keeper, registry := n.keeper(t, guard.InPlace)
		keeper.Round(t.Context())
		expect(t, registry, map[terms.State]float64{terms.Unknown: 1})
		if state := p.rules(t); state != (netfilter.State{}) {
			t.Errorf("it holds %+v", state)
		}
	})
	for name, tt := range map[string]struct {
		when func(n *node, replace func())
		want terms.State
	}{
		"another namespace is at its path": {func(n *node, replace func()) {
			n.reading = func() { replace(); n.ended["web"] = true }
		}, terms.Unknown},
		"another namespace comes to its path": {func(n *node, replace func()) { n.confirm = replace }, terms.Uncaptured},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			p, other := n.run(t, "web"), lab.StartHost(t)
			lab.Check(t, other.AddAddresses("lo", podAddress+"/32"))
			tt.when(n, func() { bind(t, other, p.sandbox.NetNS) })
			keeper, registry := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{tt.want: 1})
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
		keeper, registry := n.keeper(t, guard.InPlace)
		keeper.Round(t.Context())
		expect(t, registry, map[terms.State]float64{terms.Unknown: 1})
	})
	t.Run("another sandbox has its name", func(t *testing.T) {
		n := newNode()
		p := n.run(t, "web")
		keeper, registry := n.keeper(t, guard.ReportOnly)
		keeper.Round(t.Context())
		delete(n.sandboxes, "web")
		other := p.sandbox
		other.ID, other.UID, other.Annotations = "second", "uid-of-another", nil // it is not of the mesh
		n.sandboxes["second"] = other
		keeper.Round(t.Context())
		expect(t, registry, nil)
	})
}

// bind makes a path lead to the namespace of a host.
func bind(t *testing.T, host *lab.Host, path string) {
	t.Helper()
	lab.Check(t, errors.Join(unix.Unmount(path, unix.MNT_DETACH), unix.Mount(host.Path(), path, "", unix.MS_BIND, "")))
}

// TestEndingPods has the guard examine pods whose DEL has removed their rules, before the
// runtime leaves them out of its list: no policy reports, repairs or evicts them. CRI-O
// reports such a sandbox as ready, and its containers as exited.
func TestEndingPods(t *testing.T) {
	for how, end := range map[string]func(n *node){
		"the sandbox has ended":      func(n *node) { n.ended["web"] = true },
		"its containers have exited": func(n *node) { n.exited["web"] = true },
	} {
		for _, policy := range guard.Policies() {
			t.Run(how+", "+string(policy), func(t *testing.T) {
				n := newNode()
				conn := n.listen(t)
				p := n.run(t, "web")
				n.own("web", "ReplicaSet")
				p.capture(t, nil)
				keeper, registry := n.keeper(t, policy)
				keeper.Round(t.Context())
				p.nft(t, "delete", "table", "inet", "capture-cni")
				end(n)
				keeper.Round(t.Context())
				expect(t, registry, map[terms.State]float64{terms.Captured: 1})
				if records := receive(t, conn); len(records) > 0 {
					t.Errorf("sent %v", records)
				}
				if state := p.rules(t); state != (netfilter.State{}) {
					t.Errorf("it holds %+v", state)
				}
			})
		}
	}
	t.Run("never captured, between two containers", func(t *testing.T) {
		n := newNode()
		n.run(t, "web")
		n.exited["web"] = true
		keeper, registry := n.keeper(t, guard.InPlace)
		keeper.Round(t.Context())
		expect(t, registry, map[terms.State]float64{terms.Captured: 1})
	})
}
