// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"strings"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Verdicts of the guard about a running pod.
const (
	Repaired          record.Verdict = "repaired"
	Updated           record.Verdict = "updated"
	Found             record.Verdict = "found"  // the guard did not change the pod
	EvictionRequested record.Verdict = "doomed" // the guard asks the agent to evict the pod
)

// Reasons of the guard, which are the states that it found.
const (
	Uncaptured    = capture.Reason(report.Uncaptured)
	Drifted       = capture.Reason(report.Drifted)
	Outdated      = capture.Reason(report.Outdated)
	Changed       = capture.Reason(report.Changed)
	Foreign       = capture.Reason(report.Foreign)
	Obstructed    = capture.Reason(report.Obstructed)
	InjectedLater = capture.Reason(report.InjectedLater)
)

// isExempt reports whether a pod with this reason is in the mesh but exempt from capture.
func isExempt(r capture.Reason) bool { return strings.HasPrefix(string(r), capture.ExemptPrefix) }
