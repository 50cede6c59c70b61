// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"

	"github.com/capture-cni/capture-cni/install/nodestate"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// startGrace is how long a pod's network may take.
const startGrace = time.Minute

// reportGrace is how long a Lease may not know a new pod: the states of pods in it are
// at most two minutes old.
const reportGrace = 3 * time.Minute

// fleet returns the fleet as it follows from what was observed.
func (o observed) fleet() *Fleet {
	f := &Fleet{Namespace: o.namespace, States: map[terms.State]int{}, Exempt: map[capture.ExemptionCause]int{}}
	names := slices.AppendSeq(slices.Collect(maps.Keys(o.leases)), maps.Keys(o.agents))
	for _, pod := range o.meshed {
		names = append(names, pod.node)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	nodes, named := map[string]*Node{}, map[[3]string]nodestate.Pod{}
	for _, name := range names {
		node := o.node(name, o.agents[name], o.leases[name])
		nodes[name] = &node
		pods := cmp.Or(node.pods, &nodestate.Pods{})
		for state, count := range pods.States {
			f.States[state] += count
		}
		for cause, count := range pods.Exempt {
			f.Exempt[cause] += count
		}
		for _, pod := range pods.Named {
			named[[3]string{name, pod.Namespace, pod.Name}] = pod
		}
		if o.podsFault != nil {
			f.addNamed(name, pods.Named)
		}
	}
	for _, pod := range o.meshed {
		nodes[pod.node].Meshed++
		f.addMeshed(pod, named[[3]string{pod.node, pod.namespace, pod.name}], nodes[pod.node], o.now)
	}
	for _, name := range names {
		f.Nodes = append(f.Nodes, *nodes[name])
	}
	slices.SortFunc(f.Pods, func(a, b Pod) int {
		return cmp.Or(terms.Compare(a.State, b.State), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	f.Notes = f.notes(o)
	return f
}

// node returns a node by its agent and its Lease.
func (o observed) node(name string, agent *Agent, lease *coordination.Lease) Node {
	node := Node{Name: name, agent: agent}
	if agent != nil {
		node.Agent = agent.name
	}
	var published nodestate.State
	var err error
	var lasts time.Duration
	if lease != nil {
		published, err = nodestate.Decode(lease.Annotations[nodestate.Annotation])
		node.Version, node.Mode, node.pods = published.Version, published.Mode, published.Pods
		if lease.Spec.RenewTime != nil {
			node.Reported = lease.Spec.RenewTime.Time
		}
		if lease.Spec.LeaseDurationSeconds != nil {
			lasts = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
		}
	}
	age := o.now.Sub(node.Reported)
	set := func(state NodeState, reasons ...string) { node.State, node.Reasons = state, reasons }
	switch {
	case agent == nil && o.podsFault == nil:
		set(NoAgent, "no agent runs on the node")
	case lease == nil:
		set(Unreported, "the agent has written no Lease")
	case age < -maxAhead || lasts > maxLeaseDuration: // it would hide that the agent no longer reports
		set(Faulty, fmt.Sprintf("its Lease was renewed at %s, for %.0f s: no agent writes that", node.Reported.UTC().Format(time.RFC3339), lasts.Seconds()))
	case lasts == 0 || age > lasts:
		set(Stale, fmt.Sprintf("the agent has not reported for %s", age.Round(time.Second)))
	case errors.Is(err, nodestate.ErrFormat):
		set(Faulty, err.Error()+": use the kubectl plugin of the agents' version")
	case err != nil:
		set(Faulty, err.Error())
	case agent != nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != agent.name:
		set(Waiting, "the new agent has not reported yet")
	case !published.Good():
		node.State, node.Reasons = findings(published)
	case agent != nil && !agent.ready:
		set(Faulty, "the agent's pod is not ready: "+cmp.Or(agent.reason, "no reason is known"))
	case agent != nil && agent.guarded && published.Pods == nil:
		set(Waiting, "the guard has not reported the states of pods")
	case published.Desired == "absent":
		set(Removed)
	default:
		set(Ready)
	}
	node.Next = o.adviseNode(node)
	return node
}

// Limits of a Lease's times: agents write a few minutes, and clocks differ.
const (
	maxLeaseDuration = time.Hour
	maxAhead         = time.Hour
)

func findings(published nodestate.State) (state NodeState, reasons []string) {
	state = Waiting
	for _, finding := range published.Findings {
		if !finding.Waiting {
			state = Faulty
		}
		reasons = append(reasons, finding.Part+": "+finding.Reason)
	}
	return state, reasons
}

// addMeshed adds a pod that is not captured as desired. The guard's finding comes first,
// then what follows from the pod alone.
func (f *Fleet) addMeshed(pod meshPod, named nodestate.Pod, node *Node, now time.Time) {
	found := Pod{Namespace: pod.namespace, Name: pod.name, Node: pod.node, State: named.State, Cause: named.Cause, IstioInit: pod.istioInit}
	switch {
	case found.State != "":
	case pod.exemption.Cause != "":
		found.State, found.Cause = terms.Exempt, pod.exemption.Cause
		if node.pods == nil {
			f.States[terms.Exempt]++
			f.Exempt[found.Cause]++
		}
	case pod.noSandbox && now.Sub(pod.scheduled) > startGrace:
		found.State = terms.NotStarted
		f.States[terms.NotStarted]++
	case node.lacks(pod):
		found.State = terms.NotExamined
		f.States[terms.NotExamined]++
	case !pod.istioInit:
		return
	case node.pods != nil:
		found.State = terms.Captured
	default:
		found.State = terms.NotReported
	}
	found.Next = advisePod(found)
	f.Pods = append(f.Pods, found)
}

// lacks reports whether the node's guard should know a pod, and does not.
func (n *Node) lacks(pod meshPod) bool {
	return n.pods != nil && !pod.running.IsZero() && n.Reported.After(pod.running.Add(reportGrace)) && n.pods.Lacks(pod.uid)
}

// addNamed adds the pods that a Lease names, where the API server's pods are not known.
func (f *Fleet) addNamed(node string, pods []nodestate.Pod) {
	for _, pod := range pods {
		found := Pod{Namespace: pod.Namespace, Name: pod.Name, Node: node, State: pod.State, Cause: pod.Cause}
		found.Next = advisePod(found)
		f.Pods = append(f.Pods, found)
	}
}

// notes returns what the fleet's state does not say.
func (f *Fleet) notes(o observed) (notes []string) {
	unguarded, pods, omitted := 0, 0, 0
	for _, node := range f.Nodes {
		if node.pods != nil {
			omitted += node.pods.Omitted
		} else if node.Meshed > 0 {
			unguarded++
			pods += node.Meshed
		}
	}
	if o.podsFault != nil {
		notes = append(notes, o.podsFault.Error()+"; only the pods that Leases name are known. "+permissionHint)
	}
	if len(f.Nodes) == 0 {
		notes = append(notes, fmt.Sprintf("no agent and no Lease of one is in namespace %s: install capture-cni, or name its namespace by --agent-namespace", o.namespace))
	}
	if pods > 0 {
		notes = append(notes, fmt.Sprintf("%d nodes have no guard that reports: whether their %d pods of the mesh are captured is not known", unguarded, pods))
	}
	if omitted > 0 {
		notes = append(notes, fmt.Sprintf("%d more pods are not captured as desired: a Lease names 100 at most", omitted))
	}
	return notes
}
