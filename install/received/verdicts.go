// SPDX-License-Identifier: Apache-2.0

package received

import (
	"strings"

	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Verdicts of the guard, about a pod that runs.
const (
	Repaired          record.Verdict = "repaired"
	Found             record.Verdict = "found"  // and not changed
	EvictionRequested record.Verdict = "doomed" // asks the agent to evict it
)

// Reasons of the guard: the states that it found.
const (
	Uncaptured    = record.Reason(terms.Uncaptured)
	Drifted       = record.Reason(terms.Drifted)
	Outdated      = record.Reason(terms.Outdated)
	Changed       = record.Reason(terms.Changed)
	Foreign       = record.Reason(terms.Foreign)
	Obstructed    = record.Reason(terms.Obstructed)
	InjectedLater = record.Reason(terms.InjectedLater)
)

// IsExempt reports whether the pod is in the mesh and not captured.
func IsExempt(r record.Reason) bool { return strings.HasPrefix(string(r), record.ExemptPrefix) }
