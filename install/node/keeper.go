// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Keeper keeps a node in the desired state: it reconciles on changes and at intervals.
type Keeper struct {
	node    *Node
	metrics *nodeMetrics

	contention contention
	absent     atomic.Bool // the desired state is a clean node

	mu         sync.Mutex
	report     Report // of the last reconciliation
	reportedAt time.Time
}

// NewKeeper returns a Keeper of a node that registers its metrics.
func NewKeeper(node *Node, registry prometheus.Registerer) *Keeper {
	k := &Keeper{node: node, metrics: newNodeMetrics(metrics.NewFactory(registry))}
	k.setReport(Report{Mode: node.mode, Findings: []Finding{{PartOwner, "the agent has not checked the node yet", true}}})
	return k
}

const (
	// resyncInterval is how often the agent checks everything without an event.
	resyncInterval = time.Minute

	// tokenCheckInterval is how often the agent checks that the API server accepts
	// the plugin's token. Without a valid one, lookups of meshed pods time out.
	tokenCheckInterval = 10 * time.Second

	// undecidedInterval is how often the agent resyncs while mode auto is undecided:
	// pods start uncaptured until the runtime loads the entry.
	undecidedInterval = 5 * time.Second
)

// Present keeps the node installed until ctx ends. It then removes nothing, so that
// pods are captured also without an agent.
func (k *Keeper) Present(ctx context.Context) error {
	lock := k.claim(ctx)
	if lock == nil {
		return nil
	}
	defer lock.Close()
	net, others := k.directories()
	changes, serve := watch(append(others, net), func() { k.metrics.polling.Set(1) }, k.node.log)
	var watching sync.WaitGroup
	watching.Go(func() { serve(ctx) })
	defer watching.Wait()
	k.resync(ctx, false)
	everything, token := time.NewTicker(resyncInterval), time.NewTicker(tokenCheckInterval)
	defer everything.Stop()
	defer token.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case directory := <-changes:
			if slices.Contains(others, directory) {
				k.resync(ctx, false)
			} else { // the runtime's directory, or a subdirectory
				k.repair(ctx)
			}
		case <-everything.C:
			k.resync(ctx, false)
		case <-token.C:
			if k.node.credentials.rejected(ctx) {
				k.metrics.tokensBad.Inc()
				k.resync(ctx, true)
			}
		case <-time.After(k.untilNext()):
			k.resync(ctx, false)
		}
	}
}

// claim waits until no other agent holds the node and no other release owns it. It
// returns nil if ctx ends first.
func (k *Keeper) claim(ctx context.Context) io.Closer {
	for {
		lock, err := k.node.claim()
		if err == nil {
			return lock
		}
		report := Report{Mode: k.node.mode}
		report.add(PartOwner, err)
		k.setReport(report)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval / 2):
		}
	}
}

// directories returns the runtime's directory, which contains the entry, and the
// others to watch.
func (k *Keeper) directories() (net string, others []string) {
	settings := k.node.settings
	others = []string{filepath.Dir(settings.Credentials.CAFile)}
	for _, directory := range settings.BinDirs {
		others = append(others, settings.at(directory))
	}
	return settings.at(settings.NetDir), others
}

// untilNext returns the time until the token is due for renewal or, in an undecided
// mode auto, until the next attempt. It is at least a second.
func (k *Keeper) untilNext() time.Duration {
	next := max(time.Second, time.Until(k.node.current.token.renewal()))
	if k.node.mode == Auto {
		next = min(next, undecidedInterval)
	}
	return next
}

// resync reconciles the whole node. renew requests a new token whatever the old
// one's age.
func (k *Keeper) resync(ctx context.Context, renew bool) {
	before := k.node.current.token
	report := k.node.Install(ctx, renew)
	if after := k.node.current.token; after != before {
		k.metrics.tokensRequested.Inc()
		k.metrics.tokenIssued.Set(float64(after.issued.Unix()))
		k.metrics.tokenExpires.Set(float64(after.expires.Unix()))
	}
	if report.IsGood(PartCredentials) {
		k.metrics.credentialsChecked.SetToCurrentTime()
		k.metrics.caExpires.Set(float64(k.node.current.caExpires.Unix()))
	}
	if k.contention.isOver(time.Now()) {
		k.metrics.contended.Reset()
	}
	k.metrics.credentialsFallback.Set(boolean(k.node.current.fallback))
	k.setReport(report)
}

// repair restores the entry after another program changed the runtime's directory.
func (k *Keeper) repair(ctx context.Context) {
	if k.node.current.kubeconfig == "" {
		k.resync(ctx, false)
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(k.contention.wait(time.Now())):
	}
	changed, err := k.node.PlaceEntry(ctx)
	if changed {
		k.metrics.repairs.Inc()
		writer := k.node.writer()
		contended := k.contention.recordRepair(time.Now())
		k.metrics.contended.WithLabelValues(writer).Set(boolean(contended))
		if contended {
			k.node.log.Warn("another program keeps removing the entry; configure it to keep the entry (cilium: cni.exclusive=false), or use another mode",
				"writer", writer, "back-off", k.contention.backOff)
		}
	}
	report := k.lastReport()
	report.Findings = slices.DeleteFunc(slices.Clone(report.Findings), func(f Finding) bool { return f.Part == PartEntry })
	report.add(PartEntry, err)
	k.setReport(report)
}

func (k *Keeper) setReport(report Report) {
	k.mu.Lock()
	last := k.report
	k.report, k.reportedAt = report, time.Now()
	k.mu.Unlock()
	k.metrics.observe(report)
	if last.String() != report.String() {
		k.node.log.Info("checked the node", "mode", report.Mode, "good", report.Good(), "findings", report.Findings)
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
func (k *Keeper) CurrentReport(ctx context.Context) Report {
	last := k.lastReport()
	if k.absent.Load() || !last.IsGood(PartOwner) {
		return last
	}
	report := k.node.verify(ctx, last.Mode)
	k.metrics.observe(report)
	return report
}

func (k *Keeper) lastReport() Report {
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
// the canary failed. For pod and kernel see Canary.
func (k *Keeper) Accepts(ctx context.Context, pod record.PodRef, kernel bool) error {
	if err := k.Ready(ctx); err != nil {
		return err
	}
	return k.node.Canary(ctx, pod, kernel)
}

// SetTainted sets the metric that reports whether the node has the taint.
func (k *Keeper) SetTainted(tainted bool) { k.metrics.taint.Set(boolean(tainted)) }

// writer returns the type of the first plugin in the list that contains the entry.
func (n *Node) writer() string {
	net, err := n.open(n.settings.NetDir)
	if err != nil {
		return "unknown"
	}
	defer net.Close()
	p, err := findPrimary(net)
	if err != nil {
		return "unknown"
	}
	return p.owner()
}
