// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

const examineTimeout = 4 * time.Second

// ended is a context that has already ended. With it, podnet.Open does not wait for the lock.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// examiner examines one pod at a time, and stores the results in the pod's watched.
type examiner struct {
	settings Settings
	asker    *asker
	runtime  Runtime
	breaker  breaker // stops the requests that ask whether a pod still runs
	node     Node
	meters   map[string][]trace.Meter // by the stamp of the rules
	limits   repairLimits
	metrics  *podMetrics
	once     *onceLog
}

// examine compares one pod with its desired state, and repairs or updates the pod, or marks it for
// eviction, if settings and limits permit that. It returns the finding and the observation of the
// namespace. The observation is zero if examine could not or need not observe the namespace. packet is
// nil if no packet should be traced.
func (e *examiner) examine(ctx context.Context, w *watched, packet *trace.Packet) (report.Finding, kernel.Observation) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	asked, found := e.decide(ctx, w)
	if found.Code != "" {
		return found, kernel.Observation{}
	}
	netns, err := e.node.Open(ended, w.sandbox.NetNS)
	if errors.Is(err, podnet.ErrBusy) && w.finding.Code != "" { // for example, an ADD or a DEL runs
		return w.lastFinding(), kernel.Observation{}
	}
	if err != nil {
		return unknown(err), kernel.Observation{}
	}
	defer netns.Close()
	e.once.warn("continuing without a lock of network namespaces, which keeps ADD and guard apart", netns.LockFault())
	found, observed := e.check(ctx, netns, w, asked, packet)
	e.countTraffic(w, observed)
	switch {
	case lacksRules(found.Code):
		return e.restore(ctx, netns, w, found), observed
	case w.turn && w.isUpdatable(found):
		return e.update(ctx, netns, w, found), observed
	}
	e.renewRefused(ctx, netns, w, observed)
	return found, observed
}

// decide requests a pod from the agent, and decides about the pod's desired state. If the namespace
// need not or can't be examined, it returns a finding. It must not be called with the namespace's lock,
// because ADD and DEL wait for the lock.
func (e *examiner) decide(ctx context.Context, w *watched) (*asked, report.Finding) {
	if e.settings.Conf.ExcludesNamespace(w.sandbox.Namespace) {
		w.desired.exemption = capture.Exemption{
			Cause:   capture.NamespaceExcluded,
			Message: fmt.Sprintf("namespace %s is in excludeNamespaces", w.sandbox.Namespace),
		}
		return nil, finding(report.Exempt, w.desired.exemption.Message)
	}
	if w.later { // the guard does not repair such a pod, because an edit of a running pod must not decide about its capture
		return nil, finding(report.InjectedLater, "it was not injected when its sandbox was made, "+
			"and its annotations were edited since: replace the pod, and find out who edited it")
	}
	if w.sandbox.NetworkError != nil {
		return nil, unknown(w.sandbox.NetworkError)
	}
	answer, err := e.asker.ask(ctx, w)
	if err != nil {
		return nil, unknown(err)
	}
	if isolatingRuntime(w.sandbox.Runtime) != "" {
		return nil, w.checkIsolated(answer, e.settings.Conf.Capture.Meshes)
	}
	if answer != nil {
		w.desired.hasController = answer.HasController
		fresh, err := newAsked(answer, w.sandbox, e.settings.Conf.Capture)
		switch {
		case err != nil:
			return &asked{refusal: err}, report.Finding{}
		case fresh.Exemption.Cause == "":
			return fresh, report.Finding{}
		}
		w.desired = newDesired(answer, fresh.Exemption)
	}
	if w.desired.exemption.Cause != "" {
		return nil, finding(report.Exempt, w.desired.exemption.Message)
	}
	return nil, report.Finding{}
}

// check observes the namespace and judges the observation. If the last finding is settled, the desired
// state is unchanged, and nf_tables has had no commit since, the finding stays. But every tenth
// examination, and the one that may update the rules, compares everything.
func (e *examiner) check(
	ctx context.Context, netns Namespace, w *watched, fresh *asked, packet *trace.Packet,
) (report.Finding, kernel.Observation) {
	question := kernel.Question{Packet: packet}
	if fresh == nil && !w.turn && isSettled(w.finding.Code) && w.roundsUnchanged%fullCheckEvery != 0 {
		question.Seen = w.seen
	} else {
		w.baseline.confirmBy(e.settings.HistoryDir, w.sandbox)
	}
	question.Routes = w.desired.transparent || fresh != nil && fresh.Intent.Transparent
	o, err := netns.Observe(ctx, question)
	switch {
	case err != nil:
		return unknown(err), kernel.Observation{}
	case o.Generation == question.Seen:
		w.roundsUnchanged++
		return w.finding, o
	}
	w.seen, w.roundsUnchanged, w.exact = o.Generation, 1, false
	if fresh != nil {
		desired, err := w.baseline.desired(fresh, o, e.settings.Update)
		if err != nil {
			return judgeRefused(err, w.baseline, o), o
		}
		w.desired, w.mesh = desired, cmp.Or(desired.mesh, w.mesh)
	}
	differences, err := e.differences(ctx, netns, &w.desired, o)
	if err != nil {
		return unknown(err), o
	}
	w.exact = o.Digest == w.desired.reference
	found, baseline := judge(w.desired, w.baseline, o, differences)
	w.baseline = baseline
	return found, o
}

// differences returns lines for the differences between the namespace and its desired state. It compares
// the individual rules only if the digests differ. It returns none if there are no readable rules, or if
// the digests differ and isOther is true for the stamp.
func (e *examiner) differences(ctx context.Context, netns Namespace, d *desired, o kernel.Observation) (_ []string, err error) {
	if o.Backend == "" || o.RulesFault != nil {
		return nil, nil
	}
	rules := d.rules()
	if o.Backend == config.NFTables && d.reference == "" {
		if d.reference, err = e.node.Digest(ctx, rules); err != nil {
			return nil, err
		}
	}
	if o.Digest != d.reference && d.isOther(o.Stamp) {
		return nil, nil
	}
	return netns.Differences(ctx, o, rules, o.Digest == d.reference)
}
