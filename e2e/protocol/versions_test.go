// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestEarlierPlugin calls one version of the plugin for pods that another version captured,
// as runtimes do after an upgrade and after a downgrade: CHECK passes while the rules are
// there, a second ADD is refused and changes nothing, and DEL removes everything.
func TestEarlierPlugin(t *testing.T) {
	for _, version := range lab.EarlierVersions {
		t.Run(version, func(t *testing.T) { testTwoVersions(t, version) })
	}
}

func testTwoVersions(t *testing.T, version string) {
	earlier, today := filepath.Join(lab.Part(t, version), "capture-cni"), filepath.Join(bin, "capture-cni")
	for _, direction := range []struct {
		name, adds, takesOver string
		leavesRoutingRules    bool // of TPROXY pods: v0.1.0 knows those of its own priority alone
	}{{"upgrade", earlier, today, false}, {"downgrade", today, earlier, version == "v0.1.0"}} {
		for _, backend := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
			for _, mode := range []string{"REDIRECT", "TPROXY"} {
				t.Run(fmt.Sprintf("%s, %s, %s", direction.name, backend, mode), func(t *testing.T) {
					n, host := newNode(t), sandbox(t)
					n.Put(meshed(func(p *corev1.Pod) {
						p.Annotations["sidecar.istio.io/interceptionMode"] = mode
						p.Spec.Containers[1].Env = append(p.Spec.Containers[1].Env, corev1.EnvVar{Name: "ISTIO_DUAL_STACK", Value: "true"})
					}))
					before := network(t, host)
					c := call{
						plugin: direction.adds, netns: host.Path(), env: []string{"CAPTURE_CNI_DIR=" + filepath.Dir(n.kubeconfig)},
						stdin: n.conf(fmt.Sprintf(`"backend": %q, "ipv6": "always", "prevResult": {"cniVersion": "1.0.0"},`, backend)),
					}
					c.run(t).succeeds(t)
					c.with("CHECK", direction.adds).run(t).silent(t)
					captured := network(t, host)

					c.with("CHECK", direction.takesOver).run(t).silent(t)
					c.with("ADD", direction.takesOver).run(t).fails(t, 101)
					if after := network(t, host); after != captured {
						t.Errorf("CHECK or a refused ADD changed the pod's network:\n%s\nwas\n%s", after, captured)
					}
					c.deleteBy(t, direction.takesOver)
					if mode == "TPROXY" && direction.leavesRoutingRules {
						removeRoutingRules(t, host)
					}
					expectNoRules(t, host)
					if after := network(t, host); after != before {
						t.Errorf("after DEL:\n%s\nbefore ADD:\n%s", after, before)
					}
					for _, plugin := range []string{earlier, today} {
						c.with("CHECK", plugin).run(t).fails(t, 999)
					}
				})
			}
		}
	}
}

// delTime is the time after which a DEL ends, done or not, in either release.
const delTime = 2 * time.Second

// deleteBy calls DEL of a plugin, and again while a busy machine used up its time.
func (c call) deleteBy(t *testing.T, plugin string) {
	t.Helper()
	for range 20 {
		began := time.Now()
		c.with("DEL", plugin).run(t).silent(t)
		if time.Since(began) < delTime {
			return
		}
	}
	t.Fatalf("20 DELs took %s or longer, each", delTime)
}

// removeRoutingRules removes today's policy rules. It fails where there are none.
func removeRoutingRules(t *testing.T, host *lab.Host) {
	t.Helper()
	lab.Check(t, host.Do(func() error {
		return exec.CommandContext(t.Context(), "sh", "-c", "ip rule delete priority 1 && ip -6 rule delete priority 1").Run()
	}))
}

// with is the same call of another verb and plugin.
func (c call) with(command, plugin string) call {
	c.command, c.plugin = command, plugin
	return c
}

// network returns what a plugin can change in a pod: rules, policy routing, addresses.
func network(t *testing.T, host *lab.Host) string {
	t.Helper()
	var all strings.Builder
	lab.Check(t, host.Do(func() error {
		for _, command := range []string{"nft -s list ruleset", "ip rule", "ip -6 rule", "ip route show table 133", "ip -6 route show table 133", "ip -o address show dev lo"} {
			words := strings.Fields(command)
			out, _ := exec.CommandContext(t.Context(), words[0], words[1:]...).Output() // an error for a table that does not exist
			fmt.Fprintf(&all, "%s\n%s", command, out)
		}
		return nil
	}))
	return all.String()
}
