// SPDX-License-Identifier: Apache-2.0

// Package report holds what agent, guard and kubectl capture-cni tell each other: the state
// of a node and of its pods, the explanation of one pod, the parts of a support case, and the
// words of all of them. Pure.
package report

import (
	"cmp"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// State is the state of a pod of the mesh, a label value of metrics, the reason of a record
// and part of a Lease: values are stable.
type PodState string

// States that the guard reports.
const (
	Captured      PodState = "captured"       // has the desired rules, unchanged
	Uncaptured    PodState = "uncaptured"     // has no capture rules
	Drifted       PodState = "drifted"        // has our rules, changed since ADD or a repair
	Outdated      PodState = "outdated"       // has our rules, of another version or configuration
	Changed       PodState = "changed"        // is captured; its annotations were edited since
	Foreign       PodState = "foreign"        // is captured by another plugin
	Obstructed    PodState = "obstructed"     // has our rules, and a table that could keep packets from them
	InjectedLater PodState = "injected_later" // is in the mesh as the API server shows it, and was not when its sandbox was made
	Unknown       PodState = "unknown"        // could not be examined
	Exempt        PodState = "exempt"         // is in the mesh and not captured, by its own or the operator's choice
)

// States that follow from what the API server knows of a pod.
const (
	NotExamined PodState = "not examined" // the guard of its node does not know it
	NotStarted  PodState = "not started"  // its network has not been set up for a minute
	NotReported PodState = "not reported" // no guard reports it, and it is listed for its istio-init

	Gone         PodState = "gone"
	NotInMesh    PodState = "not in the mesh"
	NotScheduled PodState = "not scheduled"
)

// States returns all that the guard reports, in the order of the documents.
func PodStates() []PodState {
	return []PodState{Captured, Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, InjectedLater, Unknown, Exempt}
}

// IsMissing reports whether a pod's traffic may bypass the proxy against its wish, or
// whether the pod does not start.
func (s PodState) IsMissing() bool {
	switch s {
	case Uncaptured, InjectedLater, Drifted, Obstructed, Unknown, NotExamined, NotStarted:
		return true
	}
	return false
}

// bad are the states of pods that are not captured as desired, the worst last.
var bad = []PodState{Outdated, Changed, Exempt, Unknown, Obstructed, Foreign, Drifted, InjectedLater, Uncaptured}

// Compare orders states, the worst first. Those that are not known come last.
func CompareStates(a, b PodState) int { return cmp.Compare(slices.Index(bad, b), slices.Index(bad, a)) }

// Advice returns the next step for a pod of this state that was examined a moment ago, ""
// where it depends on more than the state.
func (s PodState) Advice() string {
	switch s {
	case Captured:
		return "none"
	case Uncaptured, Drifted:
		return "with guard.policy=inPlace the guard repairs it; else restart the pod. " +
			"If the state returns: find out which process changes the rules"
	case InjectedLater:
		return "delete the pod: the next one is captured; the API server's audit log says who edited it"
	case Outdated, Changed:
		return "restart the pod when it suits you"
	case Foreign:
		return "restart the pod once the other plugin is gone"
	case Obstructed:
		return "remove NET_ADMIN from the container that adds the table"
	case Unknown:
		return "run this again in a minute; if the state stays: kubectl capture-cni status"
	}
	return ""
}

// AdviceFor returns the next step for an exempt pod.
func AdviceFor(cause capture.ExemptionCause) string {
	switch cause {
	case capture.InitContainer:
		return "its init container captures it: " +
			"let the injector leave that out (pilot.cni.enabled=true, Linkerd's cniEnabled=true), and restart the pod"
	case capture.NoProxy, capture.ProxyDisabled, capture.OtherProxyType:
		return "none, if the pod has no sidecar on purpose"
	case capture.InjectFalse, capture.InterceptionNone:
		return "none, if it is on purpose; else correct its label or annotation"
	case capture.NamespaceExcluded:
		return "none, if its namespace is in excludeNamespaces on purpose"
	}
	return ""
}
