// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// checked is what the last reconciliation found.
type checked struct {
	report    Report
	clocks    error          // of node and API server, as the last token shows
	contended report.Warning // Keeper.contender
	repaired  time.Time      // the entry, for the last time
	at        time.Time
}

func (k *Keeper) setReport(report Report) {
	last := k.last.Swap(&checked{report, k.node.Store.ClockFault(), k.contender, k.contention.last, time.Now()})
	k.metrics.observe(report)
	if last == nil || last.report.String() != report.String() {
		k.log.Info("checked the node", "mode", report.Mode, "good", report.Good(), "findings", report.Findings)
	}
}

// Alive reports whether the agent still checks the node.
func (k *Keeper) Alive() bool {
	return time.Since(k.last.Load().at) < 5*resyncInterval
}

// CurrentReport returns the state of disk and runtime at this moment. While the node
// belongs to another agent, or should be clean, it returns the last report.
func (k *Keeper) CurrentReport(ctx context.Context) Report {
	last := k.last.Load()
	if k.absent.Load() || !last.report.IsGood(PartOwner) {
		return last.report
	}
	report := k.node.VerifyMode(ctx, last.report.Mode)
	report.Add(PartCredentials, last.clocks)
	report.Explain(PartCredentials, last.report) // why they could not be requested or removed
	switch {
	case last.contended.Reason == "":
	case report.IsGood(PartEntry): // for the moment
		report.Warning = cmp.Or(last.contended, report.Warning)
	default:
		report.Add(PartEntry, errors.New(last.contended.Reason+": "+last.contended.Next))
	}
	if time.Since(last.repaired) < reportWindow {
		report.Notes = append(slices.Clone(report.Notes),
			"another program wrote the network configuration lately, and the agent added its entry again")
	}
	report.Add(PartPods, k.pods())
	k.metrics.observe(report)
	return report
}

func (k *Keeper) lastReport() Report { return k.last.Load().report }

// Ready returns what is wrong with the node.
func (k *Keeper) Ready(ctx context.Context) error {
	if report := k.CurrentReport(ctx); !report.Good() {
		return errors.New(report.String())
	}
	return nil
}

// Accepts returns why pods should not start yet: what is wrong with the node, or why
// the canary failed for the agent's own pod.
func (k *Keeper) Accepts(ctx context.Context, pod record.PodRef) error {
	if err := k.Ready(ctx); err != nil {
		return err
	}
	return k.node.Canary(ctx, pod)
}

// SetTainted sets the metric that reports whether the node has the taint.
func (k *Keeper) SetTainted(tainted bool) { k.metrics.taint.Set(boolean(tainted)) }
