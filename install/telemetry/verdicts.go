// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"strings"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
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
	Uncaptured    = capture.Reason(report.Uncaptured)
	Drifted       = capture.Reason(report.Drifted)
	Outdated      = capture.Reason(report.Outdated)
	Changed       = capture.Reason(report.Changed)
	Foreign       = capture.Reason(report.Foreign)
	Obstructed    = capture.Reason(report.Obstructed)
	InjectedLater = capture.Reason(report.InjectedLater)
)

// isExempt reports whether the pod is in the mesh and not captured.
func isExempt(r capture.Reason) bool { return strings.HasPrefix(string(r), capture.ExemptPrefix) }
