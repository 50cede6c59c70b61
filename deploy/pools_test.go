// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// daemonSets renders all DaemonSets.
func daemonSets(t *testing.T, values ...string) (sets []appsv1.DaemonSet) {
	t.Helper()
	for _, o := range objects(t, values...) {
		if o.kind == "DaemonSet" {
			var set appsv1.DaemonSet
			if err := yaml.Unmarshal(o.text, &set); err != nil {
				t.Fatal(err)
			}
			sets = append(sets, set)
		}
	}
	return sets
}

// TestPools expects a DaemonSet of each pool, with what the pool sets, and the release's
// values for all else. YAML without quotes takes one of the names for a boolean.
func TestPools(t *testing.T) {
	sets := daemonSets(t, "image.digest=sha256:"+strings.Repeat("a", 64), "netconf.ipv6=always", "resourceQuota.pods=123456789",
		"pools[0].name=canary,pools[0].nodeSelector.ring=canary,pools[0].image.tag=next,pools[0].updateStrategy.type=OnDelete,pools[0].mode=insert",
		"pools[1].name=old,pools[1].nodeSelector.kernel=old,pools[1].backend=iptables-legacy,pools[1].platform=k3s",
		"pools[2].name=on,pools[2].nodeSelector.out=yes,pools[2].state=absent")
	var got []string
	for _, set := range sets {
		pod := set.Spec.Template.Spec
		var containers []string
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			containers = append(containers, c.Name)
		}
		tag := pod.Containers[0].Image[len("ghcr.io/capture-cni/capture-cni"):]
		got = append(got, fmt.Sprintf("%s: %s, image %.8s, mode %s, netconf %s, bin %s, %s, %s", set.Name, set.Spec.UpdateStrategy.Type, tag,
			flagValues(set, "mode"), fleet.NetConf(pod.Containers[0]), flagValues(set, "bin-dir"), pod.Containers[0].Args[0], strings.Join(containers, "+")))
		if labels := set.Spec.Selector.MatchLabels; !contains(set.Spec.Template.Labels, labels) || labels["capture-cni.io/pool"] != strings.TrimPrefix(strings.TrimPrefix(set.Name, "capture-cni-node"), "-") {
			t.Errorf("%s selects %v of %v", set.Name, labels, set.Spec.Template.Labels)
		}
	}
	if diff := cmp.Diff([]string{
		`capture-cni-node: RollingUpdate, image @sha256:, mode [auto], netconf {"ipv6":"always"}, bin [/opt/cni/bin], --state=present, kernel+installer+guard`,
		`capture-cni-node-canary: OnDelete, image :next, mode [insert], netconf {"ipv6":"always"}, bin [/opt/cni/bin], --state=present, kernel+installer+guard`,
		`capture-cni-node-old: RollingUpdate, image @sha256:, mode [auto], netconf {"backend":"iptables-legacy","ipv6":"always"}, bin [/var/lib/rancher/k3s/data/cni], --state=present, kernel+installer`,
		`capture-cni-node-on: RollingUpdate, image @sha256:, mode [auto], netconf {"ipv6":"always"}, bin [/opt/cni/bin], --state=absent, installer`,
	}, got); diff != "" {
		t.Error(diff)
	}
}

func contains(labels, some map[string]string) bool {
	for key, value := range some {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// TestPoolsShareNodes has random pools and nodes: each node that the release selects gets
// one agent, that of the first pool which selects it.
func TestPoolsShareNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(30, 1))
	labelled := func(atLeast int) map[string]string {
		labels := map[string]string{}
		for len(labels) < atLeast || random.IntN(2) == 0 {
			labels[string('a'+rune(random.IntN(3)))] = fmt.Sprintf("v%d", random.IntN(2))
		}
		return labels
	}
	for range 12 {
		var pools []map[string]string
		values := []string{"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key=a" +
			",affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator=Exists" +
			",affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchExpressions[0].key=b" +
			",affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchExpressions[0].operator=Exists"}
		if random.IntN(2) == 0 {
			values = nil
		}
		for i := range random.IntN(4) {
			selector := labelled(1)
			pools = append(pools, selector)
			value := fmt.Sprintf("pools[%d].name=p%d", i, i)
			for key, wanted := range selector {
				value += fmt.Sprintf(",pools[%d].nodeSelector.%s=%s", i, key, wanted)
			}
			values = append(values, value)
		}
		sets := daemonSets(t, values...)
		for range 100 {
			node := &corev1.Node{}
			node.Labels = labelled(0)
			node.Labels["kubernetes.io/os"] = "linux"
			want := "capture-cni-node"
			if i := slices.IndexFunc(pools, func(selector map[string]string) bool { return contains(node.Labels, selector) }); i >= 0 {
				want = fmt.Sprintf("capture-cni-node-p%d", i)
			}
			if len(values) > len(pools) && node.Labels["a"] == "" && node.Labels["b"] == "" {
				want = ""
			}
			var placed []string
			for _, set := range sets {
				pod := set.Spec.Template.Spec
				if fits, err := nodeaffinity.NewRequiredNodeAffinity(pod.NodeSelector, pod.Affinity).Match(node); err != nil {
					t.Fatal(err)
				} else if fits {
					placed = append(placed, set.Name)
				}
			}
			if got := strings.Join(placed, "+"); got != want {
				t.Fatalf("pools %v, node %v: agents of %q, want %q", pools, slices.Sorted(maps.Keys(node.Labels)), got, want)
			}
		}
	}
}

// TestPoolsOfARelease expects the objects that the agents of any pool need.
func TestPoolsOfARelease(t *testing.T) {
	const pool = "pools[0].name=p,pools[0].nodeSelector.a=b,"
	for values, want := range map[string]string{
		"guard.policy=evict,netconf.backend=iptables," + pool + "pools[0].backend=nftables": "ClusterRole capture-cni-evict",
		"mode=insert," + pool + "pools[0].mode=multus":                                      "NetworkAttachmentDefinition istio-cni",
		"state=absent,guard.policy=evict," + pool + "pools[0].state=present":                "ClusterRole capture-cni-evict",
	} {
		if !slices.ContainsFunc(objects(t, values), func(o object) bool { return o.kind+" "+o.name == want }) {
			t.Errorf("%s: there is no %s", values, want)
		}
	}
}

// TestUnfitPools expects an error for pools that can't be, which names the value.
func TestUnfitPools(t *testing.T) {
	const pool = "pools[0].name=p,pools[0].nodeSelector.a=b,"
	for values, want := range map[string]string{
		pool + "pools[1].name=p,pools[1].nodeSelector.c=d": `pools has two with the name "p"`,
		"pools[0].name=p":                                             "nodeSelector",
		"pools[0].nodeSelector.a=b":                                   "name",
		pool + "pools[0].paths.netDir=/x":                             "paths",
		pool + "mode=multus,pools[0].backend=iptables":                "the network attachment has one backend for the cluster",
		pool + "mode=multus,netconf.backend=auto":                     "the network attachment has one backend for the cluster",
		pool + "tryKernel=false,pools[0].backend=auto":                "tryKernel is false: the test chooses the backend",
		"pools[0].name=UPPER,pools[0].nodeSelector.a=b":               "/pools/0/name",
		pool + "metrics.podMonitor.enabled=true,netconf.backend=auto": "Prometheus can't reach a loopback address",
	} {
		if out, err := render(t, values); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s; want %q", values, err, out, want)
		}
	}
}

// TestKernel expects the test of the backend before the agent, with no more than the backend
// needs, and the guard to see what it chose.
func TestKernel(t *testing.T) {
	kernel, programs := []corev1.Capability{"SYS_ADMIN", "NET_ADMIN"}, []corev1.Capability{"SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_CHROOT", "SYS_MODULE"}
	for values, want := range map[string]struct {
		capabilities []corev1.Capability
		mounts       string
		guard        bool
	}{
		"":                                    {kernel, "/run/capture-cni/backend:/host/run/capture-cni/backend", false},
		"guard.enabled=false,paths.runDir=/r": {kernel, "/r/backend:/host/r/backend", false},
		"netconf.backend=auto":                {programs, "/:/host /run/capture-cni/backend:/host/run/capture-cni/backend", true},
		"netconf.backend=iptables-nft":        {programs, "/:/host /run/capture-cni/backend:/host/run/capture-cni/backend", false},
		"tryKernel=false":                     {nil, "", false},
		"state=absent,netconf.backend=auto":   {nil, "", false},
	} {
		pod := daemonSet(t, values).Spec.Template.Spec
		mounted := func(c corev1.Container) string {
			var mounts []string
			for _, mount := range c.VolumeMounts {
				i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
				if mount.ReadOnly == (mount.Name == "backend") {
					t.Errorf("%q: %s is read-only: %v", values, mount.MountPath, mount.ReadOnly)
				}
				mounts = append(mounts, pod.Volumes[i].HostPath.Path+":"+mount.MountPath)
			}
			return strings.Join(mounts, " ")
		}
		switch {
		case len(pod.InitContainers) != min(len(want.capabilities), 1):
			t.Errorf("%q: %d init containers", values, len(pod.InitContainers))
		case want.capabilities != nil:
			c := pod.InitContainers[0]
			if security := c.SecurityContext; *security.Privileged || *security.AllowPrivilegeEscalation || !*security.ReadOnlyRootFilesystem || !slices.Equal(security.Capabilities.Add, want.capabilities) {
				t.Errorf("%q: %+v", values, security)
			}
			if got := mounted(c); got != want.mounts {
				t.Errorf("%q: mounts %s", values, got)
			}
		}
		guarded := false
		for _, c := range pod.Containers {
			for _, mount := range c.VolumeMounts {
				guarded = guarded || c.Name == fleet.GuardContainer && mount.Name == "backend" && mount.ReadOnly
			}
		}
		if guarded != want.guard {
			t.Errorf("%q: the guard sees the choice: %v", values, guarded)
		}
	}
}
