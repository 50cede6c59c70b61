// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// guarding is one process of the guard.
type guarding struct {
	*guard.Guard
	ctx    context.Context
	cancel context.CancelFunc
	began  time.Time
	next   time.Time
}

// repairTime is how long a guard may take to repair a pod: a pause between its rounds and one between
// its repairs of a pod, and the time until it asks again.
const repairTime = 4 * time.Minute

// startGuard starts the guard next to an agent that captures pods.
func (w *world) startGuard() {
	if w.guard != nil || w.operator.state != "present" {
		return
	}
	g := &guarding{began: time.Now(), next: time.Now()}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	settings := guard.Settings{
		Conf: config.Default(), Policy: guard.InPlace, Update: guard.UpdateNever, Round: 30 * time.Second,
		HistoryDir: w.root + "/history", BaselineDir: w.root + "/guard",
	}
	send := func(_ string, r record.Record) bool { return w.agentServes() && w.receive("", r) }
	sandboxes := cri.NewLocator(cri.Over(sandboxes{connection{w}}, w.root+".sock"))
	g.Guard = guard.Node{Open: w.open, Digest: w.digest, Send: send}.New(settings, sandboxes, w, w.newLog(), prometheus.NewRegistry())
	w.guard = g
}

func (w *world) stopGuard() {
	if w.guard != nil {
		w.guard.cancel()
		w.guard = nil
	}
}

// guardPods lets the guard examine the pods, if that is due. It does so more often after an event.
func (w *world) guardPods() {
	g := w.guard
	if g == nil || time.Now().Before(g.next) {
		return
	}
	g.Round(g.ctx)
	pause := time.Minute
	if time.Since(w.lastEvent) < 30*time.Second {
		pause = 5 * time.Second
	}
	g.next = time.Now().Add(pause)
}

// Ask is a request to the agent at its socket.
func (w *world) Ask(ctx context.Context, request lookup.Request) (lookup.Answer, error) {
	if !w.agentServes() {
		return lookup.Answer{}, errors.New("no agent")
	}
	request.Version = capture.PodVersion
	return lookup.ParseAnswer(w.agent.pods.Answer(ctx, request), request)
}

// open opens the namespace of a sandbox for the guard.
func (w *world) open(_ context.Context, path string) (guard.Namespace, error) {
	for _, p := range w.pods {
		if p.netns != nil && p.netns.path == path {
			return judged{p.netns, w, p}, nil
		}
	}
	return nil, podnet.ErrGone
}

func (*world) digest(_ context.Context, rs capture.Ruleset) (string, error) { return rs.Stamp(), nil }

// judged is a pod's namespace in the hands of the guard.
type judged struct {
	*namespace
	w *world
	p *pod
}

func (j judged) Is(path string) bool { return j.path == path }

func (j judged) Observe(_ context.Context, q kernel.Question) (o kernel.Observation, err error) {
	if j.w.kernelFails {
		j.w.kernelFails = false
		j.w.reach("the kernel fails at an examination")
		return o, errors.New("reading rules: input/output error")
	}
	if o.Generation = j.generation; o.Generation == q.Seen {
		return o, nil
	}
	o.Addresses = podAddresses
	if j.rules != nil {
		o.Backend, o.Stamp, o.Digest = config.NFTables, j.rules.Stamp(), j.rules.Stamp()+j.edit
	}
	return o, nil
}

func (j judged) Differences(_ context.Context, o kernel.Observation, _ capture.Ruleset, equal bool) ([]string, error) {
	if equal {
		return nil, nil
	}
	return []string{"changed: " + o.Digest}, nil
}

// Replace is a repair.
func (j judged) Replace(_ context.Context, rs capture.Ruleset) (lost, err error) {
	if j.p.kind != meshed {
		j.w.fail("the guard changes the rules of %s", j.p.kind)
	}
	if j.isCaptured() {
		j.w.fail("the guard repairs a pod that is captured")
	}
	j.w.reach("the guard repairs a pod")
	stamped := rs.WithStamp()
	j.rules, j.edit = &stamped, ""
	j.generation++
	return nil, nil
}

func (j judged) isCaptured() bool { return j.rules != nil && j.edit == "" }

func (j judged) Update(context.Context, capture.Intent) error {
	j.w.fail("the guard updates a pod, which its settings forbid")
	return nil
}

func (judged) DeleteStale(context.Context) error { return nil }

// sandboxes is the CRI socket, for the guard.
type sandboxes struct{ connection }

func (s sandboxes) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	w := s.world
	if err := w.runtimeFault(ctx); err != nil {
		return err
	}
	switch reply := reply.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		reply.Items = w.runtime.pods
	case *runtimeapi.PodSandboxStatusResponse:
		netns, err := w.open(ctx, pathOf(request.(*runtimeapi.PodSandboxStatusRequest).PodSandboxId))
		if err != nil {
			return status.Error(codes.NotFound, "no such sandbox")
		}
		reply.Status = &runtimeapi.PodSandboxStatus{State: runtimeapi.PodSandboxState_SANDBOX_READY}
		path := netns.(judged).path
		reply.Info = map[string]string{"info": fmt.Sprintf(`{"runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": %q}]}}}`, path)}
	case *runtimeapi.ListContainersResponse:
		reply.Containers = []*runtimeapi.Container{{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	default:
		return status.Error(codes.Unimplemented, "not in this model")
	}
	return nil
}

// pathOf returns the path of a sandbox's namespace.
func pathOf(id string) string { return "/var/run/netns/" + id }

// damage lets a process of the first captured pod change its rules.
func (w *world) damage(change func(*namespace)) {
	for _, p := range w.pods {
		if p.kind == meshed && p.netns != nil && p.netns.rules != nil {
			change(p.netns)
			p.netns.generation++
			p.damaged = time.Now()
			return
		}
	}
}

// editAnnotations lets the owner of the first captured pod edit an annotation, which its rules must not
// follow.
func (w *world) editAnnotations() {
	for _, p := range w.pods {
		if p.kind == meshed && p.netns != nil {
			p.Annotations = maps.Clone(p.Annotations)
			p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "443"
			w.api.Put(p.Pod)
			if w.agentWatches() {
				w.check(w.agent.pods.Store().Update(p.DeepCopy()))
			}
			return
		}
	}
}

// mayRepair reports whether a guard had the time to repair a pod, and all that it needs for that.
func (w *world) mayRepair(p *pod) bool {
	since := latest(w.guard.began, p.started, p.damaged, w.apiSince, w.disturbed)
	return w.isHealthy() && w.agentServes() && w.agent.synced && time.Since(since) > repairTime
}

// examinePods checks that running pods have the rules of the annotations with which they started, and
// that the guard's summary says no more.
func (w *world) examinePods() {
	captured, running := 0, 0
	for _, p := range w.pods {
		if p.netns == nil {
			continue
		}
		running++
		switch isCaptured := (judged{p.netns, w, p}).isCaptured(); {
		case p.kind != meshed:
			if p.netns.rules != nil {
				w.fail("%s has rules", p.kind)
			}
		case isCaptured:
			captured++
			if want := w.want(p); !reflect.DeepEqual(p.netns.rules, want) {
				w.fail("a running pod has other rules than those of its annotations at its start: %+v", p.netns.rules)
			}
		case w.guard != nil && w.mayRepair(p):
			w.fail("a pod is not captured %s after the last event", time.Since(w.lastEvent))
		}
	}
	if w.guard == nil || time.Since(latest(w.lastEvent, w.disturbed, w.guard.began)) < repairTime || w.runtime.state != "up" {
		return
	}
	text, err := os.ReadFile(w.root + "/guard/pods.json")
	if err != nil {
		w.fail("the guard has no summary: %v", err)
		return
	}
	pods, err := report.DecodePods(text)
	if err != nil || pods.States[report.Captured]+pods.States[report.Changed] > captured {
		w.fail("the guard's summary has captured pods: %v, %d are (%v)", pods.States, captured, err)
	}
	if len(pods.Known) > running {
		w.fail("the guard's summary has %d pods, %d run", len(pods.Known), running)
	}
	w.reach("a summary of the guard")
}
