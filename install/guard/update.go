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
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Update says what the guard does with an outdated pod, whose rules are of another version or
// configuration of the plugin or, with UpdateAnnotations, of earlier annotations.
type Update string

const (
	UpdateNever       Update = "never"
	UpdateRules       Update = "rules"       // applies current rules, for the annotations at the pod's creation
	UpdateAnnotations Update = "annotations" // like UpdateRules, but also follows edited exclusions and inclusions
)

// String implements pflag.Value.
func (u *Update) String() string { return string(*u) }

// Set implements pflag.Value. It returns an error for an unknown value.
func (u *Update) Set(text string) error {
	if *u = Update(text); !slices.Contains([]Update{UpdateNever, UpdateRules, UpdateAnnotations}, *u) {
		return errors.New("expected never, rules or annotations")
	}
	return nil
}

// Type implements pflag.Value.
func (*Update) Type() string { return "string" }

func (u Update) isOn() bool { return u == UpdateRules || u == UpdateAnnotations }

// Limits of the updates on the whole node.
const (
	updateInterval = time.Second
	updateBurst    = 5
)

func newUpdateLimit() *rate.Limiter { return rate.NewLimiter(rate.Every(updateInterval), updateBurst) }

// isUpdatable reports whether the guard may update a pod with this finding. It returns false if the pod
// is not outdated or has rules of a newer version, if UpdateAnnotations is set and the edits are invalid,
// and for rules of iptables-legacy that the guard can't read, because it has no programs of iptables.
func (w *watched) isUpdatable(found report.Finding) bool {
	unread := w.baseline.Backend == config.IPTablesLegacy && w.baseline.Digest == ""
	return found.Code == report.Outdated && versionOf(w.baseline.Stamp) <= versionOf(w.desired.stamp) &&
		!w.desired.held && !unread
}

// versionOf returns the version of the rules with this stamp, or 0 for a stamp without a version.
func versionOf(stamp string) int {
	version, _, _ := strings.Cut(strings.TrimPrefix(stamp, capture.StampPrefix), " ")
	number, _ := strconv.Atoi(version) // Atoi returns the greatest int for a greater number
	return number
}

// awaitsUpdate reports whether the guard will update a pod and has not tried yet.
func (g *Guard) awaitsUpdate(w *watched) bool {
	return g.settings.Update.isOn() && w.isUpdatable(w.finding) && w.updates.count == 0
}

// giveTurns chooses the pods whose next examination may update the rules, within the node's limit. Pods
// with the fewest attempts come first, and among these the pods with the oldest rules.
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
			cmp.Compare(a.updates.count, b.updates.count), // those with fewer attempts come first
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

// update replaces a pod's rules by the desired ones, unless the pod has ended, and returns the finding
// after that. After an error, the pod has its old rules, with two exceptions. If conntrack could not be
// flushed, it has the new ones, and connections from before the fence stay. If rules of iptables-legacy
// could not be removed, it has both, and the next examination finds drift.
func (e *examiner) update(ctx context.Context, netns Namespace, w *watched, found report.Finding) report.Finding {
	runs, err := e.runs(ctx, w)
	if err == nil && (!runs || !netns.Is(w.sandbox.NetNS)) {
		return w.lastFinding()
	}
	w.updates.add(time.Now())
	if err == nil {
		err = netns.Update(ctx, w.desired.intent.unpack())
	}
	if err != nil {
		e.metrics.updates.WithLabelValues(failed).Inc()
		failure := podnet.Explained(err).Error()
		w.failure, w.failed = failure, failure != w.failure
		found.Reason += "; updating them failed: " + w.failure
		return found
	}
	e.metrics.updates.WithLabelValues(done).Inc()
	w.failure, w.reading = "", reading{stamp: w.desired.stamp}
	earlier := w.baseline.Stamp
	w.baseline, w.repaired = baseline{Stamp: w.desired.stamp, Backend: config.NFTables}, found.Code
	return finding(report.Captured, "from "+earlier+" to "+w.desired.stamp+
		"; connections that began before keep the decision of the earlier rules until they end, except that a new fence resets them")
}
