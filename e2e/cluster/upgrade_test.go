// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// TestUpgrade rolls the agents, for another image and then for another
// configuration, while pods come and go.
func TestUpgrade(t *testing.T) {
	install(t)
	check(t, c.Bring(t.Context(), "v2"))
	s := newSpace(t, restricted, cluster.Injected)
	pods := startChurn(t, s)
	pods.next(t)
	t.Cleanup(func() { installed = nil })
	for _, settings := range [][]string{{"image.tag=v2", "maxUnavailable=1"}, {"image.tag=v2", "maxUnavailable=1", "netconf.logLevel=debug"}} {
		check(t, c.Install(t.Context(), settings...))
		for _, l := range pods.next(t) {
			if !l.ours() {
				t.Errorf("after an upgrade, a pod on %s holds %+v", l.node, l.rules)
			}
		}
	}
	pods.end(t)
}
