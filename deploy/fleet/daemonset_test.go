// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/config"
)

// TestDaemonSetFacts expects the progress of DaemonSets, their meshes, and the nodes that they select.
func TestDaemonSetFacts(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]DaemonSet{
		"the controller has not read the newest specification": {Desired: 1, Unavailable: 1},
		"3 desired, 2 updated, 1 ready":                        {Observed: true, Desired: 3, Updated: 2, Ready: 1},
		"3 desired, 2 updated, 1 ready, 2 unavailable":         {Observed: true, Desired: 3, Updated: 2, Ready: 1, Unavailable: 2},
	} {
		if got := d.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	set := func(name, container, netconf string) *appsv1.DaemonSet {
		s := &appsv1.DaemonSet{}
		s.Name = name
		env := []corev1.EnvVar{{Name: "A", Value: `{"meshes":["capture-cni"]}`}, {Name: NetConfVariable, Value: netconf}}
		s.Spec.Template.Spec.Containers = []corev1.Container{{Name: container, Env: env}}
		return s
	}
	r := release{"mesh", map[types.UID]*appsv1.DaemonSet{
		"1": set("b", InstallerContainer, `{"meshes":["linkerd"]}`), "2": set("a", InstallerContainer, `{"meshes":["linkerd","istio"]}`),
		"3": set("c", "other", `{"meshes":["capture-cni"]}`),
	}}
	if got := r.meshes(); !slices.Equal(got, []config.MeshName{config.Istio, config.Linkerd}) {
		t.Errorf("the meshes are %v", got)
	}
	if got := (release{}).meshes(); !slices.Equal(got, config.DefaultSettings().Meshes) {
		t.Errorf("the meshes of none are %v", got)
	}
	node := &corev1.Node{}
	if got := r.selects(node); got != "a" {
		t.Errorf("%q selects the node", got)
	}
	for key, tolerated := range map[string]corev1.TaintEffect{
		"node.kubernetes.io/not-ready": corev1.TaintEffectNoExecute, "node.kubernetes.io/unreachable": corev1.TaintEffectNoExecute,
		"node.kubernetes.io/disk-pressure": corev1.TaintEffectNoSchedule, "node.kubernetes.io/memory-pressure": corev1.TaintEffectNoSchedule,
		"node.kubernetes.io/pid-pressure": corev1.TaintEffectNoSchedule, "node.kubernetes.io/unschedulable": corev1.TaintEffectNoSchedule,
		"node.kubernetes.io/network-unavailable": corev1.TaintEffectNoSchedule, "other": "", // tolerated with no effect
	} {
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule} {
			node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}}
			if got := r.selects(node); (got == "a") != (effect == tolerated) {
				t.Errorf("with the taint %s:%s, %q selects the node", key, effect, got)
			}
		}
	}
}

// TestReplaces expects the strategy by which an outdated agent's pod is replaced, and the pods that
// their DaemonSet no longer selects.
func TestReplaces(t *testing.T) {
	t.Parallel()
	set := func(strategy appsv1.DaemonSetUpdateStrategyType, generation, observed int64, updated int32) *appsv1.DaemonSet {
		s := &appsv1.DaemonSet{}
		s.Generation, s.Annotations = generation, map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
		s.Spec.UpdateStrategy.Type = strategy
		s.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"}
		s.Status = appsv1.DaemonSetStatus{ObservedGeneration: observed, DesiredNumberScheduled: 3, UpdatedNumberScheduled: updated}
		return s
	}
	old, current := &Agent{owner: "1", generation: "1"}, &Agent{owner: "1", generation: "2"}
	for name, tt := range map[string]struct {
		agent *Agent
		set   *appsv1.DaemonSet
		want  appsv1.DaemonSetUpdateStrategyType
	}{
		"none":          {nil, set("", 1, 1, 0), ""},
		"another's":     {&Agent{owner: "2"}, set("", 1, 1, 0), ""},
		"current":       {current, set("", 1, 1, 1), ""},
		"old":           {old, set("", 1, 1, 2), appsv1.RollingUpdateDaemonSetStrategyType},
		"old, by hand":  {old, set(appsv1.OnDeleteDaemonSetStrategyType, 1, 1, 2), appsv1.OnDeleteDaemonSetStrategyType},
		"all are new":   {old, set("", 1, 1, 3), ""},
		"not yet known": {old, set("", 2, 1, 3), appsv1.RollingUpdateDaemonSetStrategyType},
	} {
		if got := (release{"mesh", map[types.UID]*appsv1.DaemonSet{"1": tt.set}}).replaces(tt.agent); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	leaving := set("", 1, 1, 3)
	leaving.Name = "pool"
	r := release{"mesh", map[types.UID]*appsv1.DaemonSet{"1": leaving}}
	in, out := newNode("n1", corev1.ConditionTrue, nil), newNode("n2", corev1.ConditionTrue, nil)
	in.Labels, out.Labels = map[string]string{"zone": "a"}, map[string]string{"zone": "b"}
	for name, got := range map[string][2]string{
		"of no agent": {r.leaves(nil, &out), ""}, "of no node": {r.leaves(old, nil), ""}, "of another": {r.leaves(&Agent{owner: "2"}, &out), ""},
		"selected": {r.leaves(old, &in), ""}, "not selected": {r.leaves(old, &out), "pool"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %q, want %q", name, got[0], got[1])
		}
	}
}
