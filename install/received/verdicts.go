// SPDX-License-Identifier: Apache-2.0

package received

import (
	"strings"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// Verdicts of the guard, about a pod that runs.
const (
	Repaired          record.Verdict = "repaired"
	Found             record.Verdict = "found"  // and not changed
	EvictionRequested record.Verdict = "doomed" // asks the agent to evict it
)

// Reasons of the guard: what it found.
const (
	Uncaptured    record.Reason = "uncaptured"
	Drifted       record.Reason = "drifted"
	Outdated      record.Reason = "outdated"
	Changed       record.Reason = "changed"
	Foreign       record.Reason = "foreign"
	Obstructed    record.Reason = "obstructed"
	InjectedLater record.Reason = "injected_later"
)

// IsExempt reports whether the pod is in the mesh and not captured.
func IsExempt(r record.Reason) bool { return strings.HasPrefix(string(r), record.ExemptPrefix) }
