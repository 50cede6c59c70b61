// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// ErrNotHere means that the node does not run a pod.
var ErrNotHere = errors.New("this node does not run the pod")

// Explain writes what is known of one pod: its annotations at creation and now, its
// state, its rules in the kernel, and its last ADD. It changes nothing. Of a pod whose
// sandbox does not run only the last ADD is known. Errors: ErrNotHere.
func (g *Guard) Explain(ctx context.Context, namespace, name string, out io.Writer) error {
	sandbox, err := g.find(ctx, namespace, name)
	if errors.Is(err, ErrNotHere) {
		return ExplainWithoutSandbox(g.settings.HistoryDir, namespace, name, out)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pod          %s/%s, UID %s\nsandbox      %s\nnamespace    %s\n", namespace, name, sandbox.UID, sandbox.ID, cmp.Or(sandbox.NetNS, "the node's own, or its runtime's"))
	g.asker.askInjected(ctx)
	later := g.asker.injectedLater(sandbox)
	if !isMeshed(sandbox) && !later {
		fmt.Fprintln(out, "in the mesh  "+notMeshed)
		return nil
	}
	g.explainDesired(ctx, sandbox, out)
	w := &watched{sandbox: sandbox, baseline: g.store.load(sandbox.ID), later: later}
	found := g.examiner.examine(ctx, w)
	fmt.Fprintf(out, "state        %s\n", found.State)
	if found.Reason != "" {
		fmt.Fprintf(out, "because      %s\n", found.Reason)
	}
	if sandbox.NetNS != "" {
		if err := explainKernel(ctx, w, out); err != nil {
			return err
		}
	}
	if g.settings.HistoryDir == "" {
		return nil
	}
	return explainAdd(g.settings.HistoryDir, sandbox, out)
}

// notMeshed is why a pod is not captured.
const notMeshed = "no: it was not injected at its creation, or it has the node's network"

// find returns the sandbox of a pod. Errors: ErrNotHere.
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

// ExplainWithoutSandbox writes the last ADD of a pod of this name, whose sandbox is not
// known: its ADD fails or waits, or the pod has ended. Errors: ErrNotHere.
func ExplainWithoutSandbox(historyDir, namespace, name string, out io.Writer) error {
	var records []record.Record
	var err error
	if historyDir != "" {
		records, err = received.ReadAll(historyDir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, add := range slices.Backward(records) {
		if add.Pod.Namespace == namespace && add.Pod.Name == name {
			fmt.Fprintf(out, "pod          %s/%s, UID %s\nsandbox      not examined: the last one known is %s\n", namespace, name, add.Pod.UID, add.Sandbox)
			writeAdd(add, add.Sandbox, out)
			return nil
		}
	}
	return fmt.Errorf("%w, and has no record of its ADD: %s/%s", ErrNotHere, namespace, name)
}

// Pods returns the pods of the mesh that run, as namespace/name.
func (g *Guard) Pods(ctx context.Context) (pods []string, err error) {
	sandboxes, err := g.runtime.Sandboxes(ctx)
	for _, sandbox := range sandboxes {
		if isMeshed(sandbox) {
			pods = append(pods, sandbox.Namespace+"/"+sandbox.Name)
		}
	}
	return pods, err
}

// explainDesired writes the annotations that decide on capture, and their edits.
func (g *Guard) explainDesired(ctx context.Context, sandbox cri.Sandbox, out io.Writer) {
	created := capture.Pod{}.With(sandbox.Labels, sandbox.Annotations).Annotations
	now := created
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	if answer, err := g.asker.pods.Ask(ctx, lookup.Request{Pod: refOf(sandbox)}); err == nil {
		now = answer.Pod.Annotations
	} else {
		fmt.Fprintf(out, "asks now     unknown: %v\n", err)
	}
	for _, annotation := range capture.Annotations() { // the value of any other may be a secret
		then, was := created[annotation.Key]
		today, is := now[annotation.Key]
		if !was && !is {
			continue
		}
		line := describe(annotation, then, was)
		if was != is || then != today {
			line += "; now " + describe(annotation, today, is)
		}
		fmt.Fprintf(out, "asked for    %s: %s\n", annotation.Key, line)
	}
}

// maxValue bounds an annotation's value in an explanation.
const maxValue = 1 << 10

// describe quotes the value of an annotation that has a form. Of one without a form,
// only the presence is known.
func describe(annotation capture.Annotation, value string, exists bool) string {
	switch {
	case !exists:
		return "nothing"
	case annotation.Form == "any":
		return "present"
	case len(value) > maxValue:
		return fmt.Sprintf("%q… (%d bytes, cut after %d)", value[:maxValue], len(value), maxValue)
	}
	return fmt.Sprintf("%q", value)
}

func explainKernel(ctx context.Context, w *watched, out io.Writer) error {
	netns, err := podnet.Open(ctx, w.sandbox.NetNS)
	if err != nil {
		return err
	}
	defer netns.Close()
	state, err := netns.State(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "kernel       backend %s, %s\n", cmp.Or(string(state.Backend), "none"), cmp.Or(state.Stamp, "no stamp"))
	if refused, err := kernel.Refused(ctx, netns); err == nil && refused > 0 {
		fmt.Fprintf(out, "kernel       refused packets: %d\n", refused)
	}
	if state.Foreign != "" {
		fmt.Fprintf(out, "kernel       another plugin's rules: %s\n", state.Foreign)
	}
	if w.desired.stamp != "" {
		fmt.Fprintf(out, "expected     %s\n", w.desired.stamp)
	}
	return nil
}

// explainAdd writes the record of the pod's last ADD.
func explainAdd(historyDir string, sandbox cri.Sandbox, out io.Writer) error {
	add, err := history.Last(historyDir, sandbox.UID)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(out, "last ADD     not known: no agent received a record of it")
		return nil
	}
	if err != nil {
		return err
	}
	writeAdd(add, sandbox.ID, out)
	return nil
}

// writeAdd writes the record of an ADD, and names its sandbox if that is not the one
// that runs.
func writeAdd(add record.Record, running string, out io.Writer) {
	fmt.Fprintf(out, "last ADD     %s: %s", add.Time.Format(time.RFC3339), add.Verdict)
	for _, part := range []struct{ format, value string }{{" (%s)", string(add.Reason)}, {" by %s", add.Backend}, {": %s", add.Message}} {
		if part.value != "" {
			fmt.Fprintf(out, part.format, part.value)
		}
	}
	if add.Sandbox != running {
		fmt.Fprintf(out, "; for an earlier sandbox of the pod, %s", add.Sandbox)
	}
	fmt.Fprintln(out)
	for _, stage := range received.Stages() {
		if seconds, ok := add.Stages[stage]; ok {
			fmt.Fprintf(out, "last ADD     %s took %.1f ms\n", stage, 1000*seconds)
		}
	}
	for _, warning := range add.Warnings {
		fmt.Fprintf(out, "last ADD     warned: %s\n", warning)
	}
}
