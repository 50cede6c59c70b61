// SPDX-License-Identifier: Apache-2.0

// Package report holds what agent, guard and kubectl capture-cni tell each other: the state
// of a node and of its pods, the explanation of one pod, the parts of a support case, and the
// words of all of them. Pure.
package report

import (
	"cmp"
	"slices"
)

// PodStates returns the states of pods that the guard reports, in the order of the documents.
// They are label values of metrics, reasons of records and parts of Leases: values are stable.
func PodStates() []Code {
	return []Code{Captured, Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, InjectedLater, Unknown, Exempt}
}

// IsMissing reports whether a pod's traffic may bypass the proxy against its wish, or
// whether the pod does not start.
func (c Code) IsMissing() bool { return c.Severity() == Problem || c.Severity() == NotKnown }

// bad are the states of pods that are not captured as desired, the worst last.
var bad = []Code{Outdated, Changed, Exempt, Unknown, Obstructed, Foreign, Drifted, InjectedLater, Uncaptured}

// CompareStates orders states, the worst first. Those that are not known come last.
func CompareStates(a, b Code) int { return cmp.Compare(slices.Index(bad, b), slices.Index(bad, a)) }
