// SPDX-License-Identifier: Apache-2.0

// Package report contains the data that agent, guard and kubectl capture-cni exchange, and the texts
// about them: the state of a node and of its pods, the explanation of one pod, and the parts of a
// support bundle. The package uses no client and no netlink.
package report

import (
	"cmp"
	"slices"
)

// PodStates returns the states of pods that the guard reports, in the order of the documents. They are
// label values of metrics and parts of Leases, and most are reasons of records, so they never change.
func PodStates() []Code {
	return []Code{Captured, Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, InjectedLater, Unknown, Exempt}
}

// IsMissing reports whether a pod in this state may bypass its proxy unintentionally, or does not
// start, or whether this is unknown.
func (c Code) IsMissing() bool { return c.Severity() == Problem || c.Severity() == NotKnown }

// bad contains the states of pods that are not captured as desired, the worst last.
var bad = []Code{Outdated, Changed, Exempt, Unknown, NotExamined, Obstructed, Foreign, Drifted, NotStarted, InjectedLater, Uncaptured}

// CompareStates orders the states of pods, the worst first. States that bad does not contain come last.
func CompareStates(a, b Code) int { return cmp.Compare(slices.Index(bad, b), slices.Index(bad, a)) }
