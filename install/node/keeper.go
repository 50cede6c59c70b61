// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
)

// Keeper keeps a node in the desired state: it reconciles on changes and at intervals.
type Keeper struct {
	node    *Node
	log     *slog.Logger
	pods    func() error // why requests of pods are not answered
	metrics *nodeMetrics

	contention   contention
	contender    report.Finding // what keeps removing the entry; zero for nothing
	tokenChecked time.Time
	nextResync   time.Time
	absent       atomic.Bool   // the desired state is a clean node
	claimed      chan struct{} // closed once the node is this agent's

	last atomic.Pointer[checked]
}

// NewKeeper returns a Keeper of a node that registers its metrics. pods returns why the
// agent can't answer requests of pods, nil if it can.
func NewKeeper(n *Node, pods func() error, registry prometheus.Registerer, log *slog.Logger) *Keeper {
	k := &Keeper{node: n, log: log, pods: pods, metrics: newNodeMetrics(metrics.NewFactory(registry)), claimed: make(chan struct{})}
	k.setReport(Report{Mode: n.Mode, Findings: report.Findings{
		{Code: report.NodeClaimed, Severity: report.Waiting, Subject: PartOwner, Reason: "the agent has not checked the node yet"},
	}})
	return k
}

const (
	// resyncInterval is how often the agent checks everything without an event.
	resyncInterval = time.Minute

	// tokenCheckInterval is how often the agent checks that the API server accepts
	// the plugin's token. While the agent does not answer requests of pods, the plugin
	// needs the token, and lookups of meshed pods without a valid one time out.
	tokenCheckInterval    = 5 * time.Minute
	tokenCheckWithoutPods = 10 * time.Second

	// undecidedInterval is how often the agent resyncs while mode auto is undecided:
	// pods start uncaptured until the runtime loads the entry. It is also how often it tries
	// to clean a node.
	undecidedInterval = 5 * time.Second
)

// Present keeps the node installed until ctx ends. It then removes nothing, so that
// pods are captured also without an agent.
func (k *Keeper) Present(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	lock := k.claim(ctx)
	if lock == nil {
		end()
		return
	}
	defer lock.Close()
	wanted := k.node.Settings
	others := []string{filepath.Dir(wanted.Credentials.CAFile)} // than the runtime's, which contains the entry
	for _, directory := range wanted.BinDirs {
		others = append(others, wanted.At(directory))
	}
	changes, serve := watch(append(others, wanted.At(wanted.NetDir)), func() { k.metrics.polling.Set(1) }, k.log)
	var watching sync.WaitGroup
	watching.Go(func() { serve(ctx) })
	defer func() { end(); watching.Wait() }()
	k.resync(ctx, false)
	k.checkToken(ctx)
	due, token := time.NewTicker(pollInterval), time.NewTicker(tokenCheckWithoutPods)
	defer due.Stop()
	defer token.Stop()
	var repair <-chan time.Time // that is due after a pause
	for {
		select {
		case <-ctx.Done():
			return
		case directory := <-changes:
			if slices.Contains(others, directory) {
				k.resync(ctx, false)
			} else if pause := k.contention.wait(time.Now()); pause > 0 { // the runtime's directory, or a subdirectory
				repair = time.After(pause)
			} else {
				repair = nil
				k.repair(ctx)
			}
		case <-repair:
			k.repair(ctx)
		case <-due.C:
			if !time.Now().Before(k.nextResync) {
				k.resync(ctx, false)
			}
		case <-token.C:
			if k.pods() != nil || time.Since(k.tokenChecked) >= tokenCheckInterval {
				k.checkToken(ctx)
			}
		}
	}
}

// checkToken requests a new token if the API server rejects the current one.
func (k *Keeper) checkToken(ctx context.Context) {
	k.tokenChecked = time.Now()
	if !k.node.Settings.Credentials.OnNode {
		return
	}
	if k.node.Store.IsRejected(ctx) {
		k.metrics.tokensBad.Inc()
		k.resync(ctx, true)
	}
}

// Claimed returns a channel that is closed once the node is this agent's: the sockets at
// which plugin and guard reach an agent are another agent's until then.
func (k *Keeper) Claimed() <-chan struct{} { return k.claimed }

// claim waits until no other agent holds the node and no other release owns it. It
// returns nil if ctx ends first.
func (k *Keeper) claim(ctx context.Context) (lock io.Closer) {
	_ = wait.PollUntilContextCancel(ctx, pollInterval/2, true, func(context.Context) (claimed bool, err error) {
		lock, err = k.node.Claim()
		if err == nil {
			close(k.claimed)
			return true, nil
		}
		report := Report{Mode: k.node.Mode}
		report.Add(PartOwner, err)
		k.setReport(report)
		return false, nil
	})
	return lock
}

// untilNext returns the time until the next resync without an event: until the token is
// due for renewal or, in an undecided mode auto or with credentials to remove, until the
// next attempt.
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

// resync reconciles the whole node. renew requests a new token whatever the old
// one's age.
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

// repair restores the entry after another program changed the runtime's directory.
func (k *Keeper) repair(ctx context.Context) {
	// The entry comes after what the plugin needs.
	if k.node.Credentials.Kubeconfig == "" || !k.lastReport().IsGood(PartBinary) || !k.lastReport().IsGood(PartBackend) {
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

// recordRepair records that the agent restored the entry. It logs a contention when it begins,
// and each time that the back-off grows.
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

// Absent keeps the node clean until ctx ends. The agent keeps running: that it is
// ready means that the node is clean. While captured pods run, it keeps the node as it is,
// and others answer requests of pods, which stop ends.
func (k *Keeper) Absent(ctx context.Context, force bool, stop func()) {
	lock := k.claim(ctx)
	if lock == nil {
		return
	}
	defer lock.Close()
	for ctx.Err() == nil {
		err := k.node.CheckRemovable(ctx, force)
		report := Report{Mode: k.node.Mode}
		if err == nil {
			stop()
			err = k.node.Clean(false)
		} else {
			report = k.node.Install(ctx, false)
		}
		again := undecidedInterval
		if report.Add(PartEntry, err); err == nil {
			report.Findings, again = k.node.Left(), resyncInterval
		}
		k.setReport(report)
		k.absent.Store(true)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}
