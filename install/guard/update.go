// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Update is what the guard does with a pod whose rules are those of another version or
// configuration.
type Update string

const (
	UpdateNever       Update = "never"
	UpdateRules       Update = "rules"       // applies today's rules, for the annotations at the pod's creation
	UpdateAnnotations Update = "annotations" // the same, for edited exclusions and inclusions
)

// String implements a flag's value.
func (u *Update) String() string { return string(*u) }

// Set implements a flag's value. It returns an error for an unknown text.
func (u *Update) Set(text string) error {
	if *u = Update(text); !slices.Contains([]Update{UpdateNever, UpdateRules, UpdateAnnotations}, *u) {
		return errors.New("expected never, rules or annotations")
	}
	return nil
}

// Type implements a flag's value.
func (*Update) Type() string { return "string" }

// isOn reports whether pods are updated.
func (u Update) isOn() bool { return u == UpdateRules || u == UpdateAnnotations }

// Limits of updates, on the whole node.
const (
	updateInterval = time.Second
	updateBurst    = 5
)

func newUpdateLimit() *rate.Limiter { return rate.NewLimiter(rate.Every(updateInterval), updateBurst) }

// isUpdatable reports whether an update would change the rules of a pod with a finding. It leaves
// alone those of a later version than today's, those for edits that have a fault now, and those of
// iptables-legacy, if the guard has no programs that could read and remove them.
func (w *watched) isUpdatable(found report.Finding) bool {
	unread := w.baseline.Backend == config.IPTablesLegacy && w.baseline.Digest == ""
	return found.Code == report.Outdated && versionOf(w.baseline.Stamp) <= versionOf(w.desired.stamp) &&
		!w.desired.held && !unread
}

// versionOf returns the version of a stamp's rules; 0 for a stamp without one.
func versionOf(stamp string) int {
	version, _, _ := strings.Cut(strings.TrimPrefix(stamp, capture.StampPrefix), " ")
	number, _ := strconv.Atoi(version) // of a number beyond the range of int, the greatest one
	return number
}

// awaitsUpdate reports whether a pod's first update is still to come.
func (g *Guard) awaitsUpdate(w *watched) bool {
	return g.settings.Update.isOn() && w.isUpdatable(w.finding) && w.updates.count == 0
}

// giveTurns chooses the pods that this round updates: those with the oldest rules first.
func (g *Guard) giveTurns(now time.Time) {
	if !g.settings.Update.isOn() {
		return
	}
	var waiting []*watched
	for _, w := range g.watched {
		if w.isUpdatable(w.finding) && !w.turn && w.updates.backOff(now, 1) == 0 {
			waiting = append(waiting, w)
		}
	}
	slices.SortFunc(waiting, func(a, b *watched) int {
		return cmp.Or(
			cmp.Compare(a.updates.count, b.updates.count), // those that failed wait behind the others
			cmp.Compare(versionOf(a.baseline.Stamp), versionOf(b.baseline.Stamp)),
			a.listed.Compare(b.listed), cmp.Compare(a.sandbox.ID, b.sandbox.ID),
		)
	})
	for _, w := range waiting {
		if !g.updates.AllowN(now, 1) {
			return
		}
		w.turn = true
	}
}

// update gives a pod the desired rules in place of its own. After an error, the pod keeps its own, or
// has both, if those of iptables-legacy could not be removed: then the next examination finds drift.
func (e *examiner) update(ctx context.Context, netns *podnet.Namespace, w *watched, found report.Finding) report.Finding {
	runs, err := e.runs(ctx, w)
	if err == nil && (!runs || !netns.Is(w.sandbox.NetNS)) {
		return w.lastFinding()
	}
	w.updates.add(time.Now())
	if err == nil {
		err = kernel.Update(ctx, netns, w.desired.intent.unpack())
	}
	if err != nil {
		e.metrics.updates.WithLabelValues(failed).Inc()
		failure := podnet.Explained(err).Error()
		w.failure, w.failed = failure, failure != w.failure
		found.Reason += "; updating them: " + w.failure
		return found
	}
	e.metrics.updates.WithLabelValues(done).Inc()
	w.failure, w.reading = "", reading{stamp: w.desired.stamp}
	earlier := w.baseline.Stamp
	w.baseline, w.repaired = baseline{Stamp: w.desired.stamp, Backend: config.NFTables}, found.Code
	return finding(report.Captured, "from "+earlier+" to "+w.desired.stamp+
		"; connections that began before keep the decision of the earlier rules until they end")
}
