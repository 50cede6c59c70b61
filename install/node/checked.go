// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"time"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// checked is the result of the last resync, repair or removal, or of the last failed attempt to claim the
// node.
type checked struct {
	report    Report
	clocks    error          // the fault of the clocks that the last token shows, or nil
	contended report.Finding // the value of Keeper.contender
	repaired  time.Time      // when a repair last restored the entry
	at        time.Time
}

func (k *Keeper) setReport(report Report) {
	last := k.last.Swap(&checked{report, k.node.Store.ClockFault(), k.contender, k.contention.last, time.Now()})
	k.metrics.observe(report)
	if last == nil || last.report.String() != report.String() {
		k.log.Info("checked the node", "mode", report.Mode, "good", report.Good(), "findings", report.Findings.Document().Faults)
	}
}

// Alive reports whether the agent has started, tried to claim the node, or reconciled or cleaned it,
// within five resync intervals.
func (k *Keeper) Alive() bool {
	return time.Since(k.last.Load().at) < 5*resyncInterval
}

// CurrentReport verifies the files and the runtime, and returns the result. Until the agent has claimed
// and reconciled the node, and always with --state absent, it returns the last report instead.
func (k *Keeper) CurrentReport(ctx context.Context) Report {
	last := k.last.Load()
	if k.absent.Load() || !last.report.IsGood(PartOwner) {
		return last.report
	}
	found := k.node.VerifyMode(ctx, last.report.Mode)
	found.Add(PartCredentials, last.clocks)
	found.Explain(PartCredentials, last.report) // why the agent could not request or remove credentials
	// This entry may be a drop-in that the agent is only trying, and that the runtime ignores.
	if found.Mode == report.Auto && found.IsGood(PartEntry) {
		found.Add(PartEntry, conflist.Waiting("the agent has not decided on a mode yet"))
	}
	switch {
	case last.contended.Code == "":
	case found.IsGood(PartEntry): // the entry is in place at this moment
		found.Findings = append(report.Findings{last.contended}, found.Findings...)
	default:
		fault := last.contended
		fault.Severity, fault.Subject = report.Problem, PartEntry
		found.Findings = append(found.Findings, fault)
	}
	if time.Since(last.repaired) < reportWindow {
		found.Findings = append(found.Findings, report.Finding{
			Code: report.EntryRepaired, Severity: report.Note,
			Reason: "another program changed the network configuration lately, and the agent then wrote its entry",
		})
	}
	found.Add(PartPods, k.pods())
	k.metrics.observe(found)
	return found
}

func (k *Keeper) lastReport() Report { return k.last.Load().report }

// Ready returns nil if the node is in the desired state, and otherwise the node's findings.
func (k *Keeper) Ready(ctx context.Context) error {
	if found := k.CurrentReport(ctx); !found.Good() {
		return errors.New(found.String())
	}
	return nil
}

// Accepts returns nil if meshed pods may start on the node. Otherwise it returns the node's findings, or
// the error of a test call of the plugin for the agent's own pod.
func (k *Keeper) Accepts(ctx context.Context, pod capture.PodRef) error {
	if err := k.Ready(ctx); err != nil {
		return err
	}
	return k.node.Canary(ctx, pod)
}

// SetTainted sets the metric that says whether the node has the taint of --untaint.
func (k *Keeper) SetTainted(tainted bool) { k.metrics.taint.Set(boolean(tainted)) }
