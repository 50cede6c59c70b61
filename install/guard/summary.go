// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// summaryFile is next to the baselines. The agent reads it, and publishes its content.
const summaryFile = "pods.json"

const (
	summaryInterval = 2 * time.Second  // shortest time between two changes of the file
	summaryRefresh  = 30 * time.Second // time after which an unchanged file is written again

	// summaryAge is the age from which ReadSummary ignores a summary.
	summaryAge = 4 * summaryRefresh
)

// summary contains the summary that was last written, and the time of the write.
type summary struct {
	document []byte
	at       time.Time
}

// summarize returns the states of the watched pods, except pods that were not examined yet.
func (g *Guard) summarize(now time.Time) (pods report.Pods) {
	pods.States, pods.Exempt, pods.Updates = map[report.Code]int{}, map[capture.ExemptionCause]int{}, map[string]int{}
	for _, w := range g.watched {
		state := w.finding.Code
		if state == "" {
			continue // the pod was not examined yet
		}
		pods.States[state]++
		if w.repairs.count > 0 && now.Sub(w.repairs.last) < time.Hour {
			pods.Repaired++
		}
		updatable, d := w.isUpdatable(w.finding), w.desired
		if updatable && !d.followed {
			pods.Updates[string(UpdateRules)]++
		}
		if updatable && !d.faulty || state == report.Changed && d.followable && !d.followed {
			pods.Updates[string(UpdateAnnotations)]++
		}
		pods.Known = append(pods.Known, report.ShortUID(w.sandbox.UID))
		if state == report.Captured {
			continue
		}
		pod := report.NamedPod{Namespace: w.sandbox.Namespace, Name: w.sandbox.Name, State: state}
		if version := versionOf(w.baseline.Stamp); version > 0 && version <= report.MaxRules { // a pod with NET_ADMIN can write any stamp
			pod.Rules = version
		}
		if state == report.Exempt {
			pod.Cause = w.desired.exemption.Cause
			pods.Exempt[pod.Cause]++
		}
		pods.Named = append(pods.Named, pod)
	}
	return pods
}

// writeSummary writes the states of the pods to a file. It writes changes at most every
// summaryInterval, and unchanged states every summaryRefresh, because the file's age shows whether the
// guard works. Before the first successful listing of the sandboxes, it writes nothing, because the
// states are unknown.
func (g *Guard) writeSummary(now time.Time) {
	age := now.Sub(g.summary.at)
	if g.lister.last.IsZero() || age >= 0 && age < summaryInterval {
		return
	}
	document := g.summarize(now).Encode()
	if bytes.Equal(document, g.summary.document) && age >= 0 && age < summaryRefresh {
		return
	}
	err := g.store.write(summaryFile, document)
	if err == nil {
		g.summary.document, g.summary.at = document, now
	}
	g.once.warn("writing the states of the pods for the agent failed; retrying", err)
}

// ReadSummary returns the states of a node's pods, from the guard's directory. Errors: fs.ErrNotExist
// if no guard has written them; ErrNoGuard if they are older than summaryAge.
func ReadSummary(dir string) (pods report.Pods, err error) {
	document, at, err := readIn(dir, summaryFile, report.MaxNodeState)
	switch {
	case err != nil:
		return pods, fmt.Errorf("reading the guard's states of pods: %w", err)
	case time.Since(at) > summaryAge:
		return pods, ErrNoGuard
	}
	return report.DecodePods(document)
}

// ErrNoGuard means that the guard has stopped reporting the states of the pods.
var ErrNoGuard = fmt.Errorf("the guard has not reported the states of pods for more than %s", summaryAge)
