// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// startGrace is the time that the setup of a pod's network may take. After that, the pod counts as not
// started.
const startGrace = time.Minute

// reportGrace is the time after which a Lease should contain a new pod. The states of pods in a Lease
// can be two minutes old.
const reportGrace = 3 * time.Minute

// fleet returns the state of the fleet, which it concludes from the observed objects.
func (o *observed) fleet() *Fleet {
	f := &Fleet{
		Namespace: o.release.namespace,
		States:    map[report.Code]int{}, Exempt: map[capture.ExemptionCause]int{}, Updates: map[string]int{},
	}
	for _, set := range o.release.daemonSets {
		f.DaemonSets = append(f.DaemonSets, newDaemonSet(set))
	}
	slices.SortFunc(f.DaemonSets, func(a, b DaemonSet) int { return cmp.Compare(a.Name, b.Name) })
	on := o.release.meshes()
	agents, meshed := o.sortPods()
	names := o.names(agents, meshed)
	nodes, named := map[string]*Node{}, map[[3]string]report.NamedPod{}
	for _, name := range names {
		node := o.node(name, agents[name], o.leases[name])
		nodes[name] = &node
		pods := cmp.Or(node.pods, &report.Pods{})
		for state, count := range pods.States {
			f.States[state] += count
		}
		for cause, count := range pods.Exempt {
			f.Exempt[cause] += count
		}
		for value, count := range pods.Updates {
			f.Updates[value] += count
		}
		for _, pod := range pods.Named {
			named[[3]string{name, pod.Namespace, pod.Name}] = pod
		}
		if o.podsFault != nil {
			for _, pod := range pods.Named {
				f.addPod(Pod{Namespace: pod.Namespace, Name: pod.Name, Node: name, State: pod.State, Cause: pod.Cause, Rules: pod.Rules})
			}
		}
	}
	for _, pod := range meshed {
		if node := nodes[pod.node]; node != nil {
			node.Meshed++
			f.addMeshed(pod, on, named[[3]string{pod.node, pod.Namespace, pod.Name}], node, o.now)
		}
	}
	for _, name := range names {
		f.Nodes = append(f.Nodes, *nodes[name])
	}
	slices.SortFunc(f.Pods, func(a, b Pod) int {
		return cmp.Or(report.CompareStates(a.State, b.State), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, fault := range []error{o.podsFault, o.nodesFault} {
		if fault != nil {
			f.Unknown = append(f.Unknown, report.PermissionMissing.Mark(fault.Error()))
		}
	}
	f.Notes = f.notes(o)
	return f
}

// sortPods returns the agents by the names of their nodes, and the pods of the mesh. It also records the
// nodes whose agents are being deleted.
func (o *observed) sortPods() (agents map[string]*Agent, meshed []*seenPod) {
	agents, o.ending = map[string]*Agent{}, map[string]bool{}
	on := o.release.meshes()
	for _, pod := range o.pods {
		switch {
		case pod.agent == nil || !o.release.owns(pod.agent):
			if mesh, _ := pod.by(on); mesh != "" && pod.node != "" {
				meshed = append(meshed, pod)
			}
		case pod.agent.ending:
			o.ending[pod.agent.node] = true
		default:
			agents[pod.agent.node] = pod.agent
		}
	}
	return agents, meshed
}

// names returns the sorted names of the fleet's nodes. It omits nodes that are known not to exist
// any more.
func (o *observed) names(agents map[string]*Agent, meshed []*seenPod) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(o.leases)), maps.Keys(agents))
	for _, pod := range meshed {
		names = append(names, pod.node)
	}
	for name, node := range o.nodes {
		if o.release.selects(node) != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), o.isGone)
}

// isGone reports whether a node is known not to exist any more.
func (o *observed) isGone(node string) bool { return o.nodesKnown() && o.nodes[node] == nil }

// nodesKnown reports whether the Nodes could be read. Each cluster has at least one Node.
func (o *observed) nodesKnown() bool { return len(o.nodes) > 0 }

// addMeshed adds a pod to the fleet if the pod is not captured as desired, or has an init container
// istio-init. It prefers named, the guard's finding, to conclusions from the pod itself.
func (f *Fleet) addMeshed(pod *seenPod, on []config.MeshName, named report.NamedPod, node *Node, now time.Time) {
	mesh, exemption := pod.by(on)
	found := Pod{
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Mesh:      mesh,
		Node:      pod.node,
		State:     named.State,
		Cause:     named.Cause,
		Rules:     named.Rules,
		IstioInit: pod.istioInit,
		uid:       pod.UID,
	}
	switch {
	case found.State != "":
	case exemption.Cause != "":
		found.State, found.Cause = report.Exempt, exemption.Cause
		if node.pods == nil {
			f.States[report.Exempt]++
			f.Exempt[found.Cause]++
		}
	case pod.noSandbox && now.Sub(pod.scheduled) > startGrace && !node.knows(pod):
		found.State = report.NotStarted
		f.States[report.NotStarted]++
	case node.lacks(pod):
		found.State = report.NotExamined
		f.States[report.NotExamined]++
	case !pod.istioInit:
		return
	case node.pods != nil:
		found.State = report.Captured
	default:
		found.State = report.NotReported
	}
	f.addPod(found)
}

func (f *Fleet) addPod(found Pod) {
	found.Next = withNamespace(advisePod(found), f.Namespace)
	f.Pods = append(f.Pods, found)
}

// notes returns remarks about the fleet. Equal remarks about several nodes become one.
func (f *Fleet) notes(o *observed) (notes []string) {
	unguarded, pods, omitted := 0, 0, 0
	said, removed, earlier := map[string][]string{}, []string(nil), []string(nil)
	for _, node := range f.Nodes {
		for _, note := range node.Notes {
			said[note] = append(said[note], node.Name)
		}
		if node.State == Removed && node.Meshed > 0 {
			removed = append(removed, node.Name)
		}
		if node.State != Removed && node.Version != "" && node.podVersion < capture.PodVersion {
			earlier = append(earlier, node.Name)
		}
		if node.pods != nil {
			omitted += node.pods.Omitted
			if node.pods.Repaired > 0 {
				note := report.PodsRepaired.Mark(fmt.Sprintf(
					"the guard repaired %d running pods, or tried to, within the last hour; until then they were not captured as desired",
					node.pods.Repaired))
				said[note] = append(said[note], node.Name)
			}
		} else if node.Meshed > 0 {
			unguarded++
			pods += node.Meshed
		}
	}
	if o.podsFault != nil {
		notes = append(notes, report.PermissionMissing.Mark("only the pods that Leases name are known"))
	}
	switch namespace := o.release.namespace; {
	case len(f.DaemonSets) == 0:
		notes = append(notes, report.NotInstalled.Mark(fmt.Sprintf("no DaemonSet of capture-cni is in namespace %s: "+
			"install capture-cni, or set --agent-namespace to its namespace", namespace)))
	case len(f.Nodes) == 0:
		notes = append(notes, report.NoNodes.Mark(
			"no node is selected: compare nodeSelector, affinity and tolerations of the chart with the nodes"))
	}
	if gone := slices.DeleteFunc(slices.Sorted(maps.Keys(o.leases)), func(name string) bool { return !o.isGone(name) }); len(gone) > 0 {
		remove := report.Command(append([]string{"kubectl", "-n", o.release.namespace, "delete", "lease"}, gone...)...)
		notes = append(notes, report.LeasesLeft.Mark(fmt.Sprintf("%d Leases are of Nodes that no longer exist: %s", len(gone), remove)))
	}
	for _, note := range slices.Sorted(maps.Keys(said)) {
		notes = append(notes, Some(said[note])+": "+note)
	}
	if len(removed) > 0 {
		notes = append(notes, report.MeshOutside.Mark("pods of the mesh run on nodes without capture-cni, "+
			"and new ones start there uncaptured unless something else captures them: "+Some(removed)))
	}
	if len(earlier) > 0 && slices.ContainsFunc(o.pods, func(pod *seenPod) bool { return pod.fenced }) {
		notes = append(notes, report.FenceUnknown.Mark(
			"pods ask for a fence, and nodes with an earlier release can start them without one: "+Some(earlier)))
	}
	if pods > 0 {
		notes = append(notes, report.NotReported.Mark(
			fmt.Sprintf("%d nodes have no guard that reports: whether their %d pods of the mesh are captured is not known", unguarded, pods)))
	}
	if omitted > 0 {
		notes = append(notes, report.PodsUnnamed.Mark(
			fmt.Sprintf("%d more pods are not captured as desired: a Lease names 100 at most", omitted)))
	}
	return notes
}

// Some returns the first three names, and the number of the other names.
func Some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more nodes", strings.Join(names[:most], ", "), len(names)-most)
}
