// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/metrics"
	keeping "github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/pods"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// process is one process of the agent.
type process struct {
	*keeping.Keeper
	ctx           context.Context
	cancel        context.CancelFunc
	lock          io.Closer
	refusals      *kube.Refusals
	taints        *kube.TaintRemover
	lease         *kube.LeaseWriter
	hasLease      bool // this process has written it
	inVain        int  // attempts to write it
	pods          *pods.Server
	stopped       bool // it answers no more requests
	events        *telemetry.Events
	eventRequests int
	notices       map[subject]int  // in Events
	unposted      map[subject]bool // Events
	log           *slog.Logger
	next          time.Time
	nextTaint     time.Time
	nextBeat      time.Time         // of the Lease
	watched       map[string]string // the directories at the last look
	synced        bool
	began         time.Time
	wishes
}

// startAgent starts a process of the agent, as the operator wants it.
func (w *world) startAgent() {
	w.stopAgent()
	log := w.newLog()
	registry := prometheus.NewRegistry()
	a := &process{wishes: w.operator, watched: map[string]string{}, began: time.Now(), log: log}
	a.refusals = kube.NewRefusals(metrics.NewFactory(registry))
	a.ctx, a.cancel = context.WithCancel(context.Background())
	w.agent, w.mayChoose = a, w.mayChoose || a.mode != report.Auto // whose entry stays
	settings := keeping.DefaultSettings("/")
	settings.Mode, settings.NetDir, settings.BinDirs, settings.StateDir, settings.RunDir = a.mode, w.netDir, []string{w.binDir}, w.stateDir, w.runDir
	settings.Binary, settings.Execute = w.image+"/"+a.version+"/capture-cni", w.execute
	settings.Disk = w.operation
	own := capture.PodRef{Namespace: "mesh", Name: "agent", UID: "1"}
	settings.Credentials = credentials.Settings{
		OnNode: true, Pod: own, Server: "http://api", CAFile: w.image + "/ca/ca.crt", Disk: w.operation,
		Jitter:    func(limit time.Duration) time.Duration { return limit / 2 },
		TokenSpec: kube.TokenSpec{Namespace: "mesh", ServiceAccount: "plugin", Node: "node-1", TTL: time.Hour},
	}
	var err error
	settings.Entry, err = conflist.ParseEntry([]byte(a.keys), a.mode, w.stateDir, w.runDir)
	w.check(err)
	api, err := kube.New(&rest.Config{Host: "http://api", BearerToken: "agent", QPS: -1, Transport: a.refusals.Observe(w)})
	w.check(err)
	a.pods = pods.New(pods.Settings{Node: "node-1", Meshes: settings.Entry.Conf.Capture.Meshes}, api, registry, log)
	a.events = telemetry.NewEvents(api, "node-1", a.pods.Watches, registry, log)
	ready := func() error {
		if err := a.refusals.Fault(); err != nil {
			return err
		}
		request := lookup.Request{Version: capture.PodVersion} // also before the agent serves its socket
		_, err := lookup.ParseAnswer(a.pods.Answer(a.ctx, request), request)
		return err
	}
	runtime := cri.Over(connection{w}, w.root+".sock")
	a.Keeper = keeping.NewKeeper(keeping.New(settings, api, runtime, log), ready, registry, log)
	accepts := func(ctx context.Context) error { return a.Accepts(ctx, own) }
	a.taints = kube.NewTaintRemover(api, "node-1", "capture-cni.io/not-ready", accepts, a.SetTainted, log)
	a.notices, a.unposted = map[subject]int{}, map[subject]bool{}
	w.publishes(a, api, kube.LeaseSettings{Namespace: own.Namespace, Node: "node-1", Holder: own.Name})
	a.next = time.Now()
	w.generation++
	w.disturb()
}

// newLog returns a log without times.
func (w *world) newLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(&w.logs, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// stopAgent ends the process of the agent.
func (w *world) stopAgent() {
	if w.agent == nil {
		return
	}
	w.agent.cancel()
	if w.agent.lock != nil {
		w.check(w.agent.lock.Close())
	}
	w.agent, w.disk.killed = nil, false
}

// step lets the agent do what is due.
func (w *world) step() {
	w.reach("a step of the agent")
	a := w.agent
	w.calledUs = false
	if a.lock == nil {
		if a.lock = a.Claim(); a.lock == nil {
			a.next = time.Now().Add(time.Second)
			w.endStep()
			return
		}
		for _, r := range w.spool {
			w.receive("", r)
		}
		w.spool = nil
	}
	stays := a.state == "present" || !a.force && slices.ContainsFunc(w.runtime.pods, func(p *runtimeapi.PodSandbox) bool { return p.Annotations != nil })
	w.calledUs = w.wouldLoad().calls() && stays
	if a.state == "absent" {
		a.next = time.Now().Add(a.StepAbsent(a.ctx, a.force, func() {
			if a.stopped = true; w.wouldLoad().calls() {
				w.fail("the agent answers no more requests, and the runtime would call the plugin")
			}
		}))
	} else {
		w.readPods()
		a.next = a.Step(a.ctx)
		w.untaint()
	}
	w.endStep()
}

// endStep examines what a step has left, and buries an agent that was killed in it.
func (w *world) endStep() {
	if !w.disk.killed {
		w.examineFiles("after a step")
		w.calledUs = false // other programs write before the agent's next heartbeat reads
		return
	}
	if after := w.tree(w.root); fmt.Sprint(after) != fmt.Sprint(w.atKill) {
		w.fail("the model: an agent has changed files after it was killed")
	}
	w.stopAgent()
	if w.disk.powerFails {
		w.reboot()
	}
	w.disturb()
}

// untaint lets the agent check the node's taint, if that is due.
func (w *world) untaint() {
	if a := w.agent; !w.disk.killed && !time.Now().Before(a.nextTaint) {
		before := w.isTainted()
		a.nextTaint = time.Now().Add(a.taints.Step(a.ctx))
		w.examineTaintEvents()
		if before && !w.isTainted() {
			w.reach("the taint is removed")
			if !w.wouldLoad().calls() {
				w.fail("the taint is removed, and the runtime would not call the plugin")
			}
		}
		a.next = minTime(a.next, a.nextTaint)
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// isTainted reports whether there is a Node with a taint.
func (w *world) isTainted() bool { return w.isRegistered && len(w.api.Taints("node-1")) > 0 }

// register registers the Node, with the taint of a new one.
func (w *world) register() {
	w.api.PutNode("node-1", corev1.Taint{Key: "capture-cni.io/not-ready", Effect: corev1.TaintEffectNoSchedule})
	w.isRegistered, w.registered = true, time.Now()
}

// notice passes on the changes of directories, as inotify does.
func (w *world) notice() {
	a := w.agent
	if a == nil || w.noticed == w.generation {
		return
	}
	w.noticed = w.generation
	for _, directory := range []string{w.netDir, w.binDir, w.image + "/ca"} {
		tree := w.sign(directory)
		if before, known := a.watched[directory]; known && before != tree {
			a.Changed(directory)
			a.next = time.Now()
		}
		a.watched[directory] = tree
	}
}
