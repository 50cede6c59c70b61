// SPDX-License-Identifier: Apache-2.0

package record

import (
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Verdict is the result for the pod.
type Verdict string

const (
	// Of an ADD.
	Captured Verdict = "captured"
	Passed   Verdict = "passed" // not captured, by intention
	Failed   Verdict = "failed"

	// Of the guard, about a pod that runs.
	Repaired          Verdict = "repaired"
	Found             Verdict = "found"  // and not changed
	EvictionRequested Verdict = "doomed" // asks the agent to evict it
)

// OfAdds are the verdicts of ADDs.
func OfAdds() []Verdict { return []Verdict{Captured, Passed, Failed} }

// Reason is why a pod was not captured, what failed or what was found. There are
// few of them.
type Reason string

const (
	NotKubernetes     Reason = "not a Kubernetes pod"
	NamespaceExcluded Reason = "the namespace is excluded"
	StaticPod         Reason = "static pod"
	NotInjected       Reason = "not injected"

	Input         Reason = "input" // stdin or CNI_ARGS
	Configuration Reason = "configuration"
	Lookup        Reason = "lookup"
	Annotations   Reason = "annotations"
	Refused       Reason = "refused"
	Gone          Reason = "gone" // the network namespace
	Kernel        Reason = "kernel"

	Uncaptured Reason = "uncaptured"
	Drifted    Reason = "drifted"
	Outdated   Reason = "outdated"
	Changed    Reason = "changed"
	Foreign    Reason = "foreign"
	Obstructed Reason = "obstructed"

	InjectedLater Reason = "injected_later"
)

const exemptPrefix = "exempt_"

// Exempt returns the reason of a pod in the mesh that is not captured.
func Exempt(cause capture.ExemptionCause) Reason { return exemptPrefix + Reason(cause) }

// IsExempt reports whether the pod is in the mesh and not captured.
func (r Reason) IsExempt() bool { return strings.HasPrefix(string(r), exemptPrefix) }

// Reasons are all of them, by verdict.
func Reasons(verdict Verdict) []Reason {
	switch verdict {
	case Passed:
		reasons := []Reason{NotKubernetes, NamespaceExcluded, StaticPod, NotInjected}
		for _, cause := range capture.MeshedExemptions() {
			reasons = append(reasons, Exempt(cause))
		}
		return reasons
	case Failed:
		return []Reason{Input, Configuration, Lookup, Annotations, Refused, Gone, Kernel}
	case Captured:
		return []Reason{""}
	case Repaired, EvictionRequested:
		return []Reason{Uncaptured, Drifted}
	case Found:
		return []Reason{Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, InjectedLater}
	}
	return nil
}

// Stage is a part of an ADD.
type Stage string

const (
	Deciding   Stage = "decide"
	LookingUp  Stage = "lookup"
	Committing Stage = "apply"
)

// Stages are all of them, in their order.
func Stages() []Stage { return []Stage{Deciding, LookingUp, Committing} }
