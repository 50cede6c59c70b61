// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"strings"

	"github.com/capture-cni/capture-cni/install/report"
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
	Uncaptured    = record.Reason(report.Uncaptured)
	Drifted       = record.Reason(report.Drifted)
	Outdated      = record.Reason(report.Outdated)
	Changed       = record.Reason(report.Changed)
	Foreign       = record.Reason(report.Foreign)
	Obstructed    = record.Reason(report.Obstructed)
	InjectedLater = record.Reason(report.InjectedLater)
)

// isExempt reports whether the pod is in the mesh and not captured.
func isExempt(r record.Reason) bool { return strings.HasPrefix(string(r), record.ExemptPrefix) }
