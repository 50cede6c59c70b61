// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/plugin/record"
)

func (k *Keeper) setReport(report node.Report) {
	k.mu.Lock()
	last := k.report
	k.report, k.clocks, k.contended, k.repaired, k.reportedAt = report, k.node.Store.ClockFault(), k.contender, k.contention.last, time.Now()
	k.mu.Unlock()
	k.metrics.observe(report)
	if last.String() != report.String() {
		k.log.Info("checked the node", "mode", report.Mode, "good", report.Good(), "findings", report.Findings)
	}
}

// Alive reports whether the agent still checks the node.
func (k *Keeper) Alive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.reportedAt) < 5*resyncInterval
}

// CurrentReport returns the state of disk and runtime at this moment. While the node
// belongs to another agent, or should be clean, it returns the last report.
func (k *Keeper) CurrentReport(ctx context.Context) node.Report {
	k.mu.Lock()
	last, clocks, contended, repaired := k.report, k.clocks, k.contended, k.repaired
	k.mu.Unlock()
	if k.absent.Load() || !last.IsGood(node.PartOwner) {
		return last
	}
	report := k.node.VerifyMode(ctx, last.Mode)
	report.Add(node.PartCredentials, clocks)
	report.Explain(node.PartCredentials, last) // why they could not be requested or removed
	switch {
	case contended.Reason == "":
	case report.IsGood(node.PartEntry): // for the moment
		report.Warning = cmp.Or(contended, report.Warning)
	default:
		report.Add(node.PartEntry, errors.New(contended.Reason+": "+contended.Next))
	}
	if time.Since(repaired) < reportWindow {
		report.Notes = append(slices.Clone(report.Notes), "another program wrote the network configuration lately, and the agent added its entry again")
	}
	report.Add(node.PartPods, k.pods())
	k.metrics.observe(report)
	return report
}

func (k *Keeper) lastReport() node.Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.report
}

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
