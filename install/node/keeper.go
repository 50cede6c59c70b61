// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
)

// Keeper keeps a node in the desired state. It reconciles the node after changes and at intervals.
type Keeper struct {
	node    *Node
	log     *slog.Logger
	pods    func() error
	metrics *nodeMetrics

	contention   contention
	contender    report.Finding // the finding about a program that keeps removing the entry, or zero
	tokenChecked time.Time
	nextResync   time.Time
	nextRepair   time.Time     // of the entry; zero for none
	absent       atomic.Bool   // the desired state is a clean node
	claimed      chan struct{} // closed once the node belongs to this agent

	last atomic.Pointer[checked]
}

// NewKeeper returns a Keeper of a node, and registers its metrics. pods returns nil if the agent can
// answer requests for pods, and otherwise the reason.
func NewKeeper(n *Node, pods func() error, registry prometheus.Registerer, log *slog.Logger) *Keeper {
	k := &Keeper{node: n, log: log, pods: pods, metrics: newNodeMetrics(metrics.NewFactory(registry)), claimed: make(chan struct{})}
	k.setReport(Report{Mode: n.Mode, Findings: report.Findings{
		{Code: report.NodeClaimed, Severity: report.Waiting, Subject: PartOwner, Reason: "the agent has not checked the node yet"},
	}})
	return k
}

const (
	// resyncInterval is the longest interval at which the agent reconciles the whole node.
	resyncInterval = time.Minute

	// tokenCheckInterval is the interval at which the agent asks the API server whether it accepts the
	// plugin's token. While the agent can't answer requests for pods, the interval is
	// tokenCheckWithoutPods, because the plugin then needs the token, and lookups time out without a
	// valid one.
	tokenCheckInterval    = 5 * time.Minute
	tokenCheckWithoutPods = 10 * time.Second

	// undecidedInterval is the resync interval while mode auto is undecided. It is short because pods
	// start uncaptured until the runtime loads the entry. It is also the interval between attempts to
	// clean a node or to remove credentials.
	undecidedInterval = 5 * time.Second
)

// checkToken asks the API server whether it rejects the token on the node, if there should be one. If
// the API server rejects it, checkToken runs a resync that requests a new token.
func (k *Keeper) checkToken(ctx context.Context) {
	k.tokenChecked = time.Now()
	if k.node.Settings.Credentials.OnNode && k.node.Store.IsRejected(ctx) {
		k.metrics.tokensBad.Inc()
		k.resync(ctx, true)
	}
}

// Claimed returns a channel that is closed once this agent owns the node. Until then, the sockets at
// which plugin and guard reach the agent may belong to another agent.
func (k *Keeper) Claimed() <-chan struct{} { return k.claimed }

// claim waits until this agent can lock the node, and returns the lock. It returns nil if ctx ends
// before that.
func (k *Keeper) claim(ctx context.Context) (lock io.Closer) {
	_ = wait.PollUntilContextCancel(ctx, pollInterval/2, true, func(context.Context) (claimed bool, err error) {
		lock = k.Claim()
		return lock != nil, nil
	})
	return lock
}

// Claim locks the node for this agent. It returns nil if that fails, for example while another agent
// holds the node or another release owns it.
func (k *Keeper) Claim() io.Closer {
	lock, err := k.node.Claim()
	if err != nil {
		report := Report{Mode: k.node.Mode}
		report.Add(PartOwner, err)
		k.setReport(report)
		return nil
	}
	close(k.claimed)
	return lock
}

// untilNext returns the time until the next resync if nothing changes. It is shorter than
// resyncInterval if the token must be renewed earlier, mode auto is undecided, or credentials must be
// removed.
func (k *Keeper) untilNext() time.Duration {
	next := resyncInterval
	onNode := k.node.Settings.Credentials.OnNode
	if onNode {
		next = min(next, max(pollInterval, time.Until(k.node.Store.Due(k.node.Credentials))))
	}
	if k.node.Mode == report.Auto || !onNode && !k.lastReport().IsGood(PartCredentials) {
		next = min(next, undecidedInterval)
	}
	return next
}

// resync reconciles the whole node, and sets the report and the metrics. With renew, it requests a new
// token even if the current one is not old.
func (k *Keeper) resync(ctx context.Context, renew bool) {
	before, requested := k.node.Credentials.Token, k.node.Store.Requested()
	done := k.node.Install(ctx, renew)
	done.Add(PartPods, k.pods())
	k.metrics.tokensRequested.Add(float64(k.node.Store.Requested() - requested))
	current := k.node.Credentials
	if current.Token != before {
		k.metrics.tokenIssued.Set(float64(current.Token.Issued.Unix()))
		k.metrics.tokenExpires.Set(float64(current.Token.Expires.Unix()))
	}
	if done.IsGood(PartCredentials) && k.node.Settings.Credentials.OnNode {
		k.metrics.credentialsChecked.SetToCurrentTime()
		k.metrics.caExpires.Set(float64(current.CAExpires.Unix()))
	}
	if !k.contention.isContended(time.Now()) {
		k.metrics.contended.Reset()
		k.contender = report.Finding{}
	}
	k.metrics.setRuntime(k.node.IdentifyRuntime(ctx))
	k.metrics.credentialsFallback.Set(boolean(current.Fallback))
	k.metrics.observeOthers(k.node.Others)
	k.setReport(done)
	k.nextResync = time.Now().Add(k.untilNext())
}

// repair restores the entry after a change in NetDir. If the plugin is not in place, it reconciles the
// whole node instead, because the agent must write the entry after the plugin.
func (k *Keeper) repair(ctx context.Context) {
	if !k.lastReport().IsGood(PartBinary) {
		k.resync(ctx, false)
		return
	}
	changed, err := k.node.PlaceEntry(ctx)
	if changed {
		k.metrics.repairs.Inc()
		k.recordRepair(ctx)
	}
	k.metrics.observeOthers(k.node.Others)
	report := k.lastReport()
	report.Mode = k.node.Placed
	report.Findings = slices.DeleteFunc(slices.Clone(report.Findings), isFaultOf(PartEntry))
	report.Add(PartEntry, err)
	k.setReport(report)
}

// recordRepair records that the agent restored the entry. It logs the beginning of a contention, and
// each growth of the back-off.
func (k *Keeper) recordRepair(ctx context.Context) {
	now := time.Now()
	grew := k.contention.recordRepair(now)
	if !k.contention.isContended(now) {
		return
	}
	writer, warning := k.node.Rival(ctx)
	began := k.contender.Code == ""
	k.contender = warning
	k.metrics.contended.Reset()
	k.metrics.contended.WithLabelValues(writer).Set(1)
	if began || grew {
		k.log.Warn("another program keeps removing the entry",
			"problem", warning.Reason, "do", warning.Next, "writer", writer, "back-off", k.contention.backOff)
	}
}
