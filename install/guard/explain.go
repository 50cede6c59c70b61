// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// ErrNotHere means that this node does not run the pod. Errors that wrap it name other possible reasons.
var ErrNotHere = errors.New("this node does not run the pod")

// Explain returns what is known about one pod: the annotations that decide about its capture, at its
// creation and now, its state, its rules in the kernel, and its last ADD. With the policy ReportOnly, it
// changes nothing. For a pod outside the mesh, it returns only names, ids, the namespace's path and
// NotMeshed. If the pod's sandbox does not run, it returns only the last ADD. Errors: ErrNotHere if there
// is no record of an ADD, either.
func (g *Guard) Explain(ctx context.Context, namespace, name string) (report.Explanation, error) {
	sandbox, err := g.find(ctx, namespace, name)
	if errors.Is(err, ErrNotHere) {
		return ExplainWithoutSandbox(g.settings.HistoryDir, namespace, name)
	}
	if err != nil {
		return report.Explanation{}, err
	}
	p := report.Explanation{
		Form:      report.ExplanationForm,
		Namespace: namespace,
		Name:      name,
		UID:       sandbox.UID,
		Sandbox:   sandbox.ID,
		Examined:  true,
		NetNS:     sandbox.NetNS,
	}
	g.asker.askInjected(ctx)
	later := g.asker.injectedLater(sandbox)
	if !g.asker.isMeshed(sandbox) && !later {
		p.NotMeshed = notMeshed
		return p, nil
	}
	g.explainAnnotations(ctx, sandbox, &p)
	w := &watched{sandbox: sandbox, baseline: g.store.load(sandbox.ID), later: later}
	found, observed := g.examiner.examine(ctx, w, nil)
	p.State, p.Because = found.Code, found.Reason
	if sandbox.NetNS != "" {
		if p.Kernel, err = explainKernel(ctx, w, observed); err != nil {
			p.KernelUnknown = err.Error()
		}
	}
	explainAdd(g.settings.HistoryDir, sandbox, &p)
	return p, nil
}

// notMeshed names the possible reasons for which a pod is not in the mesh.
const notMeshed = "it was not injected at its creation, its mesh is not one of netconf.meshes, or it has the node's network"

// find returns the running sandbox of a pod. Errors: ErrNotHere.
func (g *Guard) find(ctx context.Context, namespace, name string) (cri.Sandbox, error) {
	sandboxes, err := g.runtime.Sandboxes(ctx)
	if err != nil {
		return cri.Sandbox{}, err
	}
	i := slices.IndexFunc(sandboxes, func(s cri.Sandbox) bool { return s.Namespace == namespace && s.Name == name })
	if i < 0 {
		return cri.Sandbox{}, fmt.Errorf("%w: %s/%s", ErrNotHere, namespace, name)
	}
	return sandboxes[i], nil
}

// ExplainWithoutSandbox returns an explanation that contains only the last ADD of a pod. It is for pods
// whose sandbox is unknown, for example because the ADD fails or still runs, or the pod has ended, and for
// callers that do not ask the runtime. Errors: ErrNotHere if there is no record of an ADD.
func ExplainWithoutSandbox(historyDir, namespace, name string) (report.Explanation, error) {
	records, err := telemetry.ReadAll(historyDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return report.Explanation{}, err
	}
	for _, add := range slices.Backward(records) {
		if add.Pod.Namespace == namespace && add.Pod.Name == name {
			return report.Explanation{
				Form: report.ExplanationForm, Namespace: namespace, Name: name, UID: add.Pod.UID, Sandbox: add.Sandbox, Add: &add,
			}, nil
		}
	}
	return report.Explanation{}, fmt.Errorf("%w, or has no record of its ADD: %s/%s", ErrNotHere, namespace, name)
}

// Pods returns the names of the running pods of the mesh, as namespace/name.
func (g *Guard) Pods(ctx context.Context) (pods []string, err error) {
	sandboxes, err := g.runtime.Sandboxes(ctx)
	for _, sandbox := range sandboxes {
		if g.asker.isMeshed(sandbox) {
			pods = append(pods, sandbox.Namespace+"/"+sandbox.Name)
		}
	}
	return pods, err
}

// explainAnnotations adds the annotations that decide about capture, at the pod's creation and now. If
// the current ones are unknown, it adds the reason, and repeats those at the creation.
func (g *Guard) explainAnnotations(ctx context.Context, sandbox cri.Sandbox, p *report.Explanation) {
	created := capture.Pod{}.With(sandbox.Labels, sandbox.Annotations).Annotations
	now := created
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	if answer, err := g.asker.pods.Ask(ctx, lookup.Request{Pod: refOf(sandbox)}); err == nil {
		now = answer.Pod.Annotations
	} else {
		p.NowUnknown = err.Error()
	}
	for _, mesh := range config.Meshes() {
		for _, annotation := range capture.Annotations(mesh) { // other annotations' values may be secrets
			a := report.PodAnnotation{Key: annotation.Key, Created: valueOf(annotation, created), Now: valueOf(annotation, now)}
			if a.Created != nil || a.Now != nil {
				p.Annotations = append(p.Annotations, a)
			}
		}
	}
}

// valueOf returns the value of an annotation, or nil if the pod does not have it. It hides a value of
// the form "any", and cuts a long one.
func valueOf(annotation capture.Annotation, all map[string]string) *report.Value {
	value, exists := all[annotation.Key]
	switch {
	case !exists:
		return nil
	case annotation.Form == "any":
		return &report.Value{Hidden: true}
	case len(value) > report.MaxValue:
		return &report.Value{Text: value[:report.MaxValue], Bytes: len(value)}
	}
	return &report.Value{Text: value}
}

// explainKernel describes the rules that an examination observed. If the examination did not observe
// the namespace, explainKernel does.
func explainKernel(ctx context.Context, w *watched, o kernel.Observation) (*report.Kernel, error) {
	if o.Generation == 0 {
		netns, err := podnet.Open(ctx, w.sandbox.NetNS)
		if err != nil {
			return nil, err
		}
		defer netns.Close()
		if o, err = kernel.Observe(ctx, netns, kernel.Question{}); err != nil {
			return nil, err
		}
	}
	if o.Backend == "" && o.RulesFault != nil {
		return nil, o.RulesFault
	}
	return &report.Kernel{
		Backend: string(o.Backend), Stamp: o.Stamp, Expected: w.desired.stamp, Foreign: o.Foreign, Refused: o.Counters.Refused(),
	}, nil
}

// explainAdd adds the record of the pod's last ADD, or the reason for which it is unknown.
func explainAdd(historyDir string, sandbox cri.Sandbox, p *report.Explanation) {
	add, err := telemetry.LastRecord(historyDir, sandbox.UID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.AddUnknown = "the agent has no record of it"
	case err != nil:
		p.AddUnknown = err.Error()
	default:
		p.Add, p.AddOfEarlier = &add, add.Sandbox != sandbox.ID
	}
}
