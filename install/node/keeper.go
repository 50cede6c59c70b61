// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/metrics"
)

// Keeper keeps a node in a state: it looks, acts, watches, and looks again.
type Keeper struct {
	node    *Node
	metrics *nodeMetrics

	fight  contention
	absent atomic.Bool // the node is to be clean

	mu     sync.Mutex
	report Report // of the last pass
	passed time.Time
}

// NewKeeper keeps a node, and shows how it is in a registry.
func NewKeeper(node *Node, registry prometheus.Registerer) *Keeper {
	k := &Keeper{node: node, metrics: newNodeMetrics(metrics.NewFactory(registry))}
	k.keep(Report{Mode: node.mode, Findings: []Finding{{PartOwner, "nothing was looked at yet", true}}})
	return k
}

const (
	// resync is how often everything is looked at though nothing was heard.
	resync = time.Minute

	// tokenCheck is how often the API server is asked whether it still takes
	// the token. Once it does not, meshed pods wait for a new one, for as long
	// as a lookup may take.
	tokenCheck = 10 * time.Second

	// undecidedPause is between passes while the runtime has not answered which
	// mode it needs: without a drop-in that it loads, pods start uncaptured.
	undecidedPause = 5 * time.Second
)

// Present keeps the node installed until ctx ends, and then leaves it as it is:
// the end of an agent is no reason for pods to start uncaptured.
func (k *Keeper) Present(ctx context.Context) error {
	lock := k.claim(ctx)
	if lock == nil {
		return nil
	}
	defer lock.Close()
	net, others := k.folders()
	changes, serve := watch(append(others, net), func() { k.metrics.polling.Set(1) }, k.node.log)
	var watching sync.WaitGroup
	watching.Go(func() { serve(ctx) })
	defer watching.Wait()
	k.pass(ctx, false)
	everything, token := time.NewTicker(resync), time.NewTicker(tokenCheck)
	defer everything.Stop()
	defer token.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case folder := <-changes:
			if slices.Contains(others, folder) {
				k.pass(ctx, false)
			} else { // the runtime's folder, or one within
				k.repair(ctx)
			}
		case <-everything.C:
			k.pass(ctx, false)
		case <-token.C:
			if k.node.credentials.rejected(ctx) {
				k.metrics.tokensBad.Inc()
				k.pass(ctx, true)
			}
		case <-time.After(k.untilNext()):
			k.pass(ctx, false)
		}
	}
}

// claim waits until the node is ours: for an agent of the same release to end,
// or for another release to be uninstalled. It gives nil where ctx ends first.
func (k *Keeper) claim(ctx context.Context) io.Closer {
	for {
		lock, err := k.node.claim()
		if err == nil {
			return lock
		}
		report := Report{Mode: k.node.mode}
		report.add(PartOwner, err)
		k.keep(report)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval / 2):
		}
	}
}

// folders are the runtime's, in which our entry is, and all others in which a
// change concerns us.
func (k *Keeper) folders() (net string, others []string) {
	settings := k.node.settings
	others = []string{filepath.Dir(settings.Credentials.CAFile)}
	for _, folder := range settings.BinDirs {
		others = append(others, settings.at(folder))
	}
	return settings.at(settings.NetDir), others
}

// untilNext is the time until the token is due for renewal, or until the runtime
// is asked again which mode it needs. A pass is never repeated without a pause.
func (k *Keeper) untilNext() time.Duration {
	next := max(time.Second, time.Until(k.node.current.token.renewal()))
	if k.node.mode == Auto {
		next = min(next, undecidedPause)
	}
	return next
}

// pass looks at everything and puts it right. renew asks for a new token
// whatever the old one's age.
func (k *Keeper) pass(ctx context.Context, renew bool) {
	before := k.node.current.token
	report := k.node.Install(ctx, renew)
	if after := k.node.current.token; after != before {
		k.metrics.tokensRequested.Inc()
		k.metrics.tokenIssued.Set(float64(after.issued.Unix()))
		k.metrics.tokenExpires.Set(float64(after.expires.Unix()))
	}
	if report.Is(PartCredentials) {
		k.metrics.credentialsChecked.SetToCurrentTime()
		k.metrics.caExpires.Set(float64(k.node.current.caExpires.Unix()))
	}
	if k.fight.over(time.Now()) {
		k.metrics.contended.Reset()
	}
	k.metrics.credentialsFallback.Set(boolean(k.node.current.fallback))
	k.keep(report)
}

// repair puts back our entry, which somebody may just have taken away.
func (k *Keeper) repair(ctx context.Context) {
	if k.node.current.kubeconfig == "" {
		k.pass(ctx, false)
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(k.fight.wait(time.Now())):
	}
	changed, err := k.node.PlaceEntry(ctx)
	if changed {
		k.metrics.repairs.Inc()
		writer := k.node.writer()
		fighting := k.fight.repaired(time.Now())
		k.metrics.contended.WithLabelValues(writer).Set(boolean(fighting))
		if fighting {
			k.node.log.Warn("somebody keeps taking our entry away; its writer may have a setting for that (cilium: cni.exclusive=false), or use another mode",
				"writer", writer, "next repair in", k.fight.backOff)
		}
	}
	report := k.Report()
	report.Findings = slices.DeleteFunc(slices.Clone(report.Findings), func(f Finding) bool { return f.Part == PartEntry })
	report.add(PartEntry, err)
	k.keep(report)
}

func (k *Keeper) keep(report Report) {
	k.mu.Lock()
	last := k.report
	k.report, k.passed = report, time.Now()
	k.mu.Unlock()
	k.metrics.observe(report)
	if last.String() != report.String() {
		k.node.log.Info("the node", "mode", report.Mode, "good", report.Good(), "findings", report.Findings)
	}
}

// Alive tells whether passes are still being made.
func (k *Keeper) Alive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.passed) < 5*resync
}

// Report is how the node was at the last pass.
func (k *Keeper) Report() Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.report
}

// writer names whose list our entry is in.
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
