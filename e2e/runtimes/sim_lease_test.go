// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"

	"github.com/capture-cni/capture-cni/install/kube"
	keeping "github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/report"
)

// leasePause is the longest pause between two attempts to write the Lease, with a request.
const leasePause = 5*time.Minute + 30*time.Second

// publishes gives an agent the writer of its Lease.
func (w *world) publishes(a *process, api *kube.Client, settings kube.LeaseSettings) {
	settings.NodeUID = func() string { return "uid-of-node-1" }
	var found keeping.Report
	var at time.Time
	var of int
	settings.State = func(ctx context.Context) report.NodeState {
		if of != w.generation || time.Since(at) >= 30*time.Second { // for speed
			found, of, at = a.CurrentReport(ctx), w.generation, time.Now()
		}
		return report.NodeState{Version: a.version, Mode: found.Mode, Desired: a.state, Findings: found.Findings}
	}
	a.lease, a.nextBeat, w.leaseRequests = kube.NewLeaseWriter(settings, api, a.log), time.Now().Add(2*time.Second), 0
}

// beat lets the agent write its Lease, if that is due, and wants no write of what the Lease says already.
func (w *world) beat() {
	a, before, requests := w.agent, w.api.Lease("mesh", "node-1"), w.leaseRequests
	a.lease.Publish(a.ctx, time.Now())
	w.postEvents()
	w.examineRest()
	a.nextBeat = time.Now().Add(10 * time.Second)
	after := w.api.Lease("mesh", "node-1")
	if after == nil || before != nil && before.ResourceVersion == after.ResourceVersion {
		if w.leaseRequests == requests {
			return
		}
		if a.inVain++; a.inVain > 1 && w.apiState == "ok" && time.Since(latest(w.refused, w.leaseTouched)) > time.Minute {
			w.fail("the Lease: not written at attempt %d, while the API server answers", a.inVain)
		}
		return
	}
	a.inVain = 0
	w.reach("the Lease is written")
	first := !a.hasLease
	a.hasLease = true
	state := func(lease *coordination.Lease) string { return lease.Annotations[report.NodeAnnotation] }
	if first || before == nil || time.Since(w.refused) < leasePause || state(before) != state(after) {
		return
	}
	pause := pauseOf(after)
	if age := after.Spec.RenewTime.Sub(before.Spec.RenewTime.Time); age < pause {
		w.fail("the Lease is written again after %s, and not after %s", age, pause)
	}
}

// requestsAtRest is how many requests an agent sends in an hour (deploy/reference/numbers.md).
const requestsAtRest = 32

// count counts the requests, except those about pods, tokens, which last only minutes here, and the taint.
// Those for the Lease become rare while the API server does not answer.
func (w *world) count(request *http.Request) {
	isAbout := func(kind string) bool { return strings.Contains(request.URL.Path, kind) }
	if !isAbout("/pods") && !isAbout("/events") && !isAbout("/nodes/") && !isAbout("/token") {
		w.requests++
	}
	if isAbout("/namespaces/shop/events") {
		w.agent.eventRequests++
		up := time.Since(w.agent.began)
		// An answer of 429 has the client repeat a request each second, for the 5 s of an Event, and the
		// first request of the next Event then follows at once.
		if most := 26 + int(up.Seconds()) + int(up/(5*time.Second)); w.agent.eventRequests > most {
			w.fail("requests: more than %d for Events of an agent that runs for %s", most, up)
		}
	}
	if !isAbout("/leases") {
		return
	}
	w.leaseRequests++
	down := time.Since(latest(w.apiSince, w.agent.began))
	if most := 2 * (7 + int(down/(5*time.Minute))); w.apiState != "ok" && w.apiState != "slow" && w.leaseRequests > most {
		w.fail("requests: more than %d for the Lease while the API server is %s for %s", most, w.apiState, down)
	}
}

// examineRest checks the number of requests on a node without faults.
func (w *world) examineRest() {
	if !w.isDue() || len(w.disk.standing) > 0 || time.Since(latest(w.calm, w.refused, w.agent.began)) < 5*time.Minute {
		w.restSince, w.restRequests = time.Now(), w.requests
		return
	}
	rest, hourly := time.Since(w.restSince), float64(requestsAtRest)
	if w.agent.state == "absent" { // a removal that waits for pods writes its Lease each minute
		hourly += 60
	}
	if most := 3 + int(hourly*rest.Hours()); w.requests-w.restRequests > most {
		w.fail("requests: more than %d of an agent that rests for %s", most, rest)
	}
	if rest > 10*time.Minute {
		w.reach("an agent rests")
	}
}

// examineLease checks that an agent renews its Lease long before it expires.
func (w *world) examineLease() {
	if w.apiState != "ok" || time.Since(latest(w.refused, w.agent.began, w.leaseTouched)) < leasePause {
		return
	}
	lease := w.api.Lease("mesh", "node-1")
	if lease == nil {
		w.fail("the Lease: none after %s", time.Since(w.agent.began))
		return
	}
	w.reach("the Lease of an agent")
	if age := time.Since(lease.Spec.RenewTime.Time); age > pauseOf(lease)+time.Minute {
		w.fail("the Lease: written %s ago, and not %s", age, pauseOf(lease))
	}
}

// pauseOf returns the time between two writes of an unchanged Lease, which lasts for two and a minute.
func pauseOf(lease *coordination.Lease) time.Duration {
	return (time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second - time.Minute) / 2
}

// editLease changes a label as another program does, which gives the Lease a new resource version.
func (w *world) editLease() {
	if lease := w.api.Lease("mesh", "node-1"); lease != nil {
		lease.Labels["edited"] = fmt.Sprint(w.generation)
		w.api.PutLease(lease)
		w.calm, w.leaseTouched = time.Now(), time.Now()
	}
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
