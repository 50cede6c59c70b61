// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/config"
	pathtrace "github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestText pins the text of every field. Times are UTC, and no line of a text passes for a
// fact.
func TestText(t *testing.T) {
	t.Parallel()
	pod := Explanation{
		Form: ExplanationForm, Namespace: "shop", Name: "web", UID: "uid-1", Sandbox: "4ed1", Examined: true, NetNS: "/run/netns/x", NowUnknown: "no answer",
		Annotations: []PodAnnotation{
			{Key: "a", Created: &Value{Text: "1"}, Now: &Value{Text: "1"}},
			{Key: "b", Created: &Value{}, Now: &Value{Text: "2"}},
			{Key: "c", Now: &Value{Hidden: true}},
			{Key: "d", Created: &Value{Text: "xy", Bytes: 9}},
		},
		State: Drifted, Because: "a rule is missing\nstate        captured",
		Kernel:        &Kernel{Backend: "nftables", Stamp: "stamp 1", Expected: "stamp 2", Foreign: "nat/X", Refused: 3},
		KernelUnknown: "too much",
		Add: &record.Record{
			Time: time.Date(2026, 1, 2, 4, 4, 5, 0, time.FixedZone("", 3600)), Sandbox: "0ld", Trace: "4bf9", Verdict: record.Failed, Reason: capture.ReasonAnnotations, Backend: "nftables",
			Message: "a\nb", Stages: map[record.Stage]float64{record.Committing: .0123, record.Deciding: .001, record.LookingUp: .002}, Warnings: []string{"w"}, Notes: []string{"n"},
		},
		AddOfEarlier: true, AddUnknown: "unreadable",
	}
	const want = `pod          shop/web, UID uid-1
sandbox      4ed1
namespace    /run/netns/x
asks now     unknown: no answer
asked for    a: "1"
asked for    b: ""; now "2"
asked for    c: nothing; now present
asked for    d: "xy"… (9 bytes, cut after 2); now nothing
state        drifted
because      a rule is missing
             state        captured
kernel       backend nftables, stamp 1
kernel       refused packets: 3
kernel       another plugin's rules: nat/X
expected     stamp 2
kernel       not known: too much
last ADD     2026-01-02T03:04:05Z: failed (annotations) by nftables: a
             b; for an earlier sandbox of the pod, 0ld
last ADD     trace 4bf9
last ADD     decide took 1.0 ms
last ADD     lookup took 2.0 ms
last ADD     apply took 12.3 ms
last ADD     warned: w
last ADD     noted: n
last ADD     not known: unreadable
`
	if diff := cmp.Diff(want, pod.Text()); diff != "" {
		t.Error(diff)
	}
	document, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var read Explanation
	if err := DecodeAnswer(document, &read); err != nil || read.Text() != want {
		t.Errorf("read as %v\n%s", err, read.Text())
	}
	pod.NotMeshed, pod.NetNS, pod.Add, pod.AddUnknown = "it was not injected", "", nil, ""
	if want := "namespace    that of the node or of the pod's runtime, or unknown\nin the mesh  no: it was not injected\n"; !strings.HasSuffix(pod.Text(), want) {
		t.Errorf("outside the mesh:\n%s", pod.Text())
	}
	pod.Examined, pod.NotMeshed = false, ""
	if want := "pod          shop/web, UID uid-1\nsandbox      not examined: the last one known is 4ed1\n"; pod.Text() != want {
		t.Errorf("not examined:\n%s", pod.Text())
	}
	pod = Explanation{Examined: true, Kernel: &Kernel{}}
	if want := "kernel       backend none, no stamp\n"; !strings.HasSuffix(pod.Text(), want) {
		t.Errorf("an empty kernel:\n%s", pod.Text())
	}
}

// TestTraceText has the traces without a path, and what stands before a path: install/trace has the paths.
func TestTraceText(t *testing.T) {
	t.Parallel()
	for want, trace := range map[string]Trace{
		"in the mesh  no: it was not injected\n":                                       {NotMeshed: "it was not injected"},
		"verdict      passes: the pod is not captured\nbecause      istio-init\n":      {NotCaptured: "istio-init"},
		"can't tell   the pod is unknown: no answer\ncan't tell   and another table\n": {Doubts: []string{"the pod is unknown: no answer", "and another table"}},
	} {
		trace.Namespace, trace.Name, trace.UID = "shop", "web", "uid-1"
		if got := trace.Text(); got != "pod          shop/web, UID uid-1\n"+want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		const otherwise = "\notherwise    leaving that aside"
		trace.Path = &pathtrace.Path{}
		if got := trace.Text(); !strings.Contains(got, want) || strings.Contains(got, otherwise) != (trace.Doubts != nil) {
			t.Errorf("before a path: %s", got)
		}
	}
}

// TestDecode tells an answer of another form from one that is none, and ignores fields that
// it does not know.
func TestDecode(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]error{
		`{"form":1,"name":"web","later":[1]}`: nil,
		`{"form":2,"name":"web"}`:             errExplanationForm,
		`{"name":"web"}`:                      errExplanationForm,
		`{"form":1,"name":"web"`:              ErrAnswer,
		`{"form":"2"}`:                        ErrAnswer,
		"pod          shop/web, UID uid-1\n":  ErrAnswer,
		"":                                    ErrAnswer,
		`{"form":1,"name":7}`:                 ErrAnswer,
	} {
		var p Explanation
		err := DecodeAnswer([]byte(document), &p)
		if !errors.Is(err, want) || errors.Is(err, errExplanationForm) != (want == errExplanationForm) || err != nil && !errors.Is(err, ErrAnswer) || err == nil && p.Name != "web" {
			t.Errorf("%s: %+v, %v", document, p, err)
		}
	}
}

// TestSize has each field at its limit, in characters that JSON writes with six.
func TestSize(t *testing.T) {
	t.Parallel()
	worst := func(size int) string { return strings.Repeat("\x01", size) }
	reason := worst(8 << 10) // of 20 differences
	pod := Explanation{
		NotMeshed: reason, NowUnknown: reason, Because: reason, KernelUnknown: reason, AddUnknown: reason,
		Kernel: &Kernel{Backend: worst(record.MaxBackend), Stamp: worst(256), Expected: worst(256), Foreign: worst(256)},
		Add:    &record.Record{Message: worst(record.MaxMessage)},
	}
	for _, mesh := range config.Meshes() {
		for _, annotation := range capture.Annotations(mesh) {
			value := &Value{Text: worst(MaxValue), Bytes: 1 << 18}
			pod.Annotations = append(pod.Annotations, PodAnnotation{annotation.Key, value, value})
		}
	}
	for range record.MaxWarnings {
		pod.Add.Warnings, pod.Add.Notes = append(pod.Add.Warnings, worst(record.MaxWarning)), append(pod.Add.Notes, worst(record.MaxWarning))
	}
	trace := Trace{NotCaptured: reason}
	for range MaxDoubts + 1 {
		trace.Doubts = append(trace.Doubts, worst(512))
	}
	for _, answer := range []any{pod, trace} {
		document, err := json.Marshal(answer)
		if err != nil || len(document) > MaxExplanation {
			t.Errorf("%T: %d bytes, want at most %d; %v", answer, len(document), MaxExplanation, err)
		}
		t.Logf("%T: %d bytes", answer, len(document))
	}
}

// FuzzText expects each line of a text to be a fact, or to belong to one: answers come from
// agents, and quote pods.
func FuzzText(f *testing.F) {
	f.Add([]byte(`{"form":1,"examined":true,"state":"a\nstate        b","add":{"message":"x\r\ny","stages":{"apply":1}}}`))
	names := map[string]bool{}
	for _, name := range []string{"pod", "sandbox", "namespace", "in the mesh", "asks now", "asked for", "state", "because", "kernel", "expected", "last ADD"} {
		names[name] = true
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var p Explanation
		if DecodeAnswer(document, &p) != nil {
			return
		}
		for line := range strings.Lines(p.Text()) {
			if len(line) < 13 || !names[strings.TrimSpace(line[:13])] && strings.TrimSpace(line[:13]) != "" {
				t.Errorf("%q", line)
			}
		}
	})
}
