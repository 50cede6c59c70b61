// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestForm pins the form: a kubectl plugin and an agent of different versions share it.
func TestForm(t *testing.T) {
	t.Parallel()
	state := NodeState{
		Version: "v1.2.3", Mode: "dropin", Backend: "nftables", Desired: "present",
		Findings: Findings{
			{Code: NoIPv6, Severity: Note, Reason: "one"},
			{Code: BesideIstioCNI, Severity: Warning, Reason: "twice", Next: "remove one"},
			{Code: EntryNotLoaded, Severity: Waiting, Subject: "runtime", Reason: "the runtime does not answer", Next: "wait"},
		},
		Pods: &Pods{
			States: map[Code]int{"captured": 7, "exempt": 1, "uncaptured": 1, "drifted": 0}, Exempt: map[capture.ExemptionCause]int{"no_proxy": 1},
			Named: []NamedPod{{"shop", "old", "exempt", "no_proxy", 0}, {"shop", "web", "uncaptured", "", 5}}, Omitted: 2, Repaired: 1,
			Known: []string{"beef0002", "beef0001", "in the CLEAR"}, Updates: map[string]int{"rules": 1, "annotations": 2, "none": 0},
		},
		PodVersion: 3,
	}
	const want = `{"format":1,"version":"v1.2.3","mode":"dropin","backend":"nftables","desired":"present",` +
		`"findings":[{"part":"runtime","reason":"the runtime does not answer: wait","waiting":true,"code":"entry-not-loaded"}],` +
		`"warning":{"reason":"twice","nextStep":"remove one","code":"istio-cni"},"notes":["one"],"noteCodes":["no-ipv6"],` +
		`"pods":{"states":{"captured":7,"exempt":1,"uncaptured":1},"exempt":{"no_proxy":1},` +
		`"named":[{"namespace":"shop","name":"web","state":"uncaptured","rules":5},{"namespace":"shop","name":"old","state":"exempt","cause":"no_proxy"}],"omitted":2,"repaired":1,"updates":{"annotations":2,"rules":1},"known":["beef0001","beef0002"]},"podVersion":3}`
	if diff := cmp.Diff(want, state.Encode()); diff != "" {
		t.Error(diff)
	}
	if labels := fmt.Sprint(LeaseLabels()); labels != "map[app.kubernetes.io/component:node-state app.kubernetes.io/name:capture-cni]" {
		t.Errorf("the labels are %s", labels)
	}
	read, err := DecodeNode(want)
	if err != nil || read.Encode() != want || read.Findings[0].Severity != Waiting {
		t.Errorf("read as %s, %v", read.Encode(), err)
	}
	if _, err := DecodeNode(strings.Replace(want, `"format":1`, `"format":1,"later":{}`, 1)); err != nil {
		t.Errorf("with a field of a later version: %v", err)
	}
	if _, err := DecodeNode(strings.Replace(want, `"format":1`, `"format":2`, 1)); !errors.Is(err, ErrNodeFormat) {
		t.Errorf("of another format: %v", err)
	}
	if _, err := DecodeNode(want + strings.Repeat(" ", MaxNodeState-len(want))); err != nil {
		t.Errorf("of the greatest size: %v", err)
	}
	for _, bad := range []string{"", "{", "[]", want + strings.Repeat(" ", MaxNodeState-len(want)+1)} {
		if _, err := DecodeNode(bad); err == nil || errors.Is(err, ErrNodeFormat) {
			t.Errorf("%.40q was read", bad)
		}
	}
}

// TestNodeOfEarlierRelease reads the state that an agent of 0.3 wrote, which has no codes: faults get those of
// their parts. A reader of 0.3 finds the same in the state of an agent of today.
func TestNodeOfEarlierRelease(t *testing.T) {
	t.Parallel()
	const earlier = `{"format":1,"version":"v0.3.0","mode":"insert","backend":"nftables","desired":"present",` +
		`"findings":[{"part":"entry","reason":"no list","waiting":true},{"part":"runtime","reason":"no answer"},{"part":"later","reason":"x"},` +
		`{"part":"owner","reason":"x"},{"part":"binary","reason":"x"},{"part":"credentials","reason":"x"},{"part":"backend","reason":"x"},{"part":"pods","reason":"x"}],` +
		`"warning":{"reason":"twice","nextStep":"remove one"},"notes":["a","b"],"pods":{"states":{"captured":1}}}`
	read, err := DecodeNode(earlier)
	want := NodeState{
		Version: "v0.3.0", Mode: Insert, Backend: "nftables", Desired: "present", Pods: &Pods{States: map[Code]int{Captured: 1}},
		Findings: Findings{
			{EntryMissing, Waiting, "entry", "no list", ""},
			{EntryNotLoaded, Problem, "runtime", "no answer", ""},
			{"", Problem, "later", "x", ""},
			{NodeClaimed, Problem, "owner", "x", ""},
			{PluginMissing, Problem, "binary", "x", ""},
			{CredentialsInvalid, Problem, "credentials", "x", ""},
			{BackendUnusable, Problem, "backend", "x", ""},
			{LookupsUnanswered, Problem, "pods", "x", ""},
			{"", Warning, "", "twice", "remove one"},
			{"", Note, "", "a", ""},
			{"", Note, "", "b", ""},
		},
	}
	if diff := cmp.Diff(want, read); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	type of03 struct {
		Format                          int
		Version, Mode, Backend, Desired string
		Findings                        []struct {
			Part, Reason string
			Waiting      bool
		}
		Warning struct{ Reason, NextStep string }
		Notes   []string
		Pods    map[string]any
	}
	var before, now of03
	if err := errors.Join(json.Unmarshal([]byte(earlier), &before), json.Unmarshal([]byte(read.Encode()), &now)); err != nil || !cmp.Equal(before, now) {
		t.Errorf("%v: %s", err, cmp.Diff(before, now))
	}
}

// TestSizeIsBounded encodes as many pods as a hostile user could make, with names of
// any form, and texts of any length.
func TestSizeIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<\x00é", 1<<16)
	hostile := Pods{States: map[Code]int{}, Exempt: map[capture.ExemptionCause]int{}}
	for i := range 5000 {
		hostile.Known = append(hostile.Known, fmt.Sprintf("%08x", i), long)
		hostile.States[Code(fmt.Sprint("state", i, long[:64]))] = 1
		hostile.Exempt[capture.ExemptionCause(strings.Repeat("a", 1+i%32))] = 1
		name := fmt.Sprintf("%s%d", strings.Repeat("a", 248), i%9973)
		hostile.Named = append(hostile.Named, NamedPod{strings.Repeat("n", 63), name, "uncaptured", "", 9999}, NamedPod{"shop", long, "uncaptured", "", 9999},
			NamedPod{long, "web", "uncaptured", "", 9999}, NamedPod{"shop", "web", "uncaptured", capture.ExemptionCause(long), 0}, NamedPod{"shop", "a/b", "uncaptured", "", 9999}, NamedPod{"shop", "web", "uncaptured", "", -1})
	}
	state := NodeState{Version: long, Mode: Mode(long), Desired: long, Pods: &hostile}
	for range 500 {
		state.Findings = append(state.Findings, Finding{Code(long), Problem, long, long, long})
	}
	text := state.Encode()
	if len(text) > MaxNodeState {
		t.Fatalf("%d bytes", len(text))
	}
	read, err := DecodeNode(text)
	if err != nil {
		t.Fatal(err)
	}
	if named := len(read.Pods.Named); named == 0 || named > 100 || read.Pods.Omitted != maxCount {
		t.Errorf("%d pods are named and %d omitted, of %d", named, read.Pods.Omitted, len(hostile.Named))
	}
	if document := hostile.Encode(); len(document) > MaxNodeState {
		t.Errorf("the pods alone take %d bytes", len(document))
	}
}

// TestEscapesAreBounded has texts of bytes that JSON writes with more bytes, or reads with more.
func TestEscapesAreBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("\x01", maxText), strings.Repeat("<", maxText), strings.Repeat("\xff", maxText), strings.Repeat("\xff", 50) + strings.Repeat("x", 240)} {
		state := NodeState{Version: text, Mode: Mode(text), Backend: text, Desired: text}
		for _, severity := range []Severity{Problem, Warning, Note} {
			state.Findings = append(state.Findings, slices.Repeat(Findings{{Code(text), severity, text, text, text}}, maxFindings)...)
		}
		if _, err := DecodeNode(state.Encode()); err != nil {
			t.Errorf("texts of %q: %v", text[:1], err)
		}
	}
}

// TestOmittedPods counts each pod that is not named, whether there are too many, their names
// are too long, or both, and whoever left it out.
func TestOmittedPods(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ pods, length, omitted int }{
		{50, 10, 0}, {50, 10, 7}, {150, 10, 0}, {90, 250, 0}, {95, 250, 7}, {150, 250, 7},
	} {
		pods := Pods{Omitted: test.omitted}
		for i := range test.pods {
			pods.Named = append(pods.Named, NamedPod{strings.Repeat("n", 63), fmt.Sprintf("%0*d", test.length, i), "obstructed", "", 9999})
		}
		texts := slices.Repeat(Findings{{"x", Problem, strings.Repeat("x", maxText), strings.Repeat("x", maxText), ""}}, maxFindings)
		read, err := DecodeNode(NodeState{Pods: &pods, Findings: texts}.Encode())
		alone, aloneErr := DecodePods(pods.Encode())
		if err != nil || aloneErr != nil {
			t.Fatalf("%+v: %v, %v", test, err, aloneErr)
		}
		for _, got := range []Pods{*read.Pods, alone} {
			if len(got.Named)+got.Omitted != test.pods+test.omitted || test.length > 100 && len(got.Named) > 99 {
				t.Errorf("%+v: %d pods are named and %d omitted", test, len(got.Named), got.Omitted)
			}
		}
	}
}

// TestGreatest leaves out no byte of the greatest text and the greatest pods, and a tenth of the pods of one byte more.
func TestGreatest(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("\x01", 61) + strings.Repeat("x", 2*maxText-len(`""`)-6*61)
	if read, err := DecodeNode(NodeState{Version: text}.Encode()); err != nil || read.Version != text {
		t.Errorf("%q, %v", read.Version, err)
	}
	for size, kept := range map[int]int{MaxNodeState: 91, MaxNodeState + 1: 81} {
		pods := Pods{Named: slices.Repeat([]NamedPod{{strings.Repeat("n", 63), strings.Repeat("a", 250), "obstructed", "", 0}}, 91)}
		pods.Named[0].Name = "b"
		pods.Named[0].Name = strings.Repeat("b", size-len(encodeState(pods))+1)
		read, err := DecodePods(pods.Encode())
		if err != nil || len(read.Named) != kept || read.Omitted != 91-kept {
			t.Errorf("%d bytes: %d pods are named and %d omitted, %v", size, len(read.Named), read.Omitted, err)
		}
	}
}

// words returns counts at their limit, by different words.
func words[K ~string](n int) map[K]int {
	counts := map[K]int{}
	for i := range n {
		counts[K(strings.Repeat("a", i+1)[:min(i+1, 30)]+string(rune('a'+i%26)))] = maxCount
	}
	return counts
}

// TestForged refuses what no agent writes, and takes all that one may.
func TestForged(t *testing.T) {
	t.Parallel()
	named := func(n int) []NamedPod { return slices.Repeat([]NamedPod{{"shop", "web", "uncaptured", "", 0}}, n) }
	text := func(n int) string { return strings.Repeat("x", n) }
	for _, test := range []struct {
		name  string
		state NodeState
		want  string // in the error; empty: it is read
	}{
		{"empty", NodeState{}, ""},
		{"at every limit", NodeState{
			Version: text(maxText), Mode: Mode(text(maxText)), Desired: text(maxText), Findings: slices.Repeat(Findings{{Code(text(maxText)), Problem, text(maxText), text(maxText), ""}}, maxFindings),
			Pods: &Pods{States: words[Code](maxCounts), Exempt: words[capture.ExemptionCause](maxCounts), Named: named(maxPods), Omitted: maxCount, Known: slices.Repeat([]string{"beef0001"}, maxKnown)},
		}, ""},
		{"a zero", NodeState{Pods: &Pods{States: map[Code]int{"captured": 0}}}, ""},
		{"a negative count", NodeState{Pods: &Pods{States: map[Code]int{"uncaptured": -1}}}, `-1 pods counted as "uncaptured"`},
		{"an absurd count", NodeState{Pods: &Pods{States: map[Code]int{"captured": maxCount + 1}}}, "10001 pods"},
		{"a negative cause", NodeState{Pods: &Pods{Exempt: map[capture.ExemptionCause]int{"no_proxy": -1}}}, "-1 pods"},
		{"an absurd cause", NodeState{Pods: &Pods{Exempt: map[capture.ExemptionCause]int{"no_proxy": maxCount + 1}}}, "10001 pods"},
		{"no word", NodeState{Pods: &Pods{States: map[Code]int{"Captured!": 1}}}, `"Captured!"`},
		{"a negative remainder", NodeState{Pods: &Pods{Omitted: -1}}, "-1 pods"},
		{"an absurd remainder", NodeState{Pods: &Pods{Omitted: maxCount + 1}}, "10001 pods"},
		{"a negative repair", NodeState{Pods: &Pods{Repaired: -1}}, "-1 pods"},
		{"an absurd repair", NodeState{Pods: &Pods{Repaired: maxCount + 1}}, "10001 pods"},
		{"an absurd update", NodeState{Pods: &Pods{Updates: map[string]int{"rules": maxCount + 1}}}, "10001 pods"},
		{"too many updates", NodeState{Pods: &Pods{Updates: words[string](maxCounts + 1)}}, "33 updates"},
		{"too many states", NodeState{Pods: &Pods{States: words[Code](maxCounts + 1)}}, "33 states"},
		{"too many causes", NodeState{Pods: &Pods{Exempt: words[capture.ExemptionCause](maxCounts + 1)}}, "33 causes"},
		{"too many pods", NodeState{Pods: &Pods{Named: named(maxPods + 1)}}, "101 named pods"},
		{"too many known pods", NodeState{Pods: &Pods{Known: slices.Repeat([]string{"beef0001"}, maxKnown+1)}}, "1001 known pods"},
		{"a name of no pod", NodeState{Pods: &Pods{Named: []NamedPod{{"shop", "a\x1b[2J", "uncaptured", "", 0}}}}, "expected names as Kubernetes has them"},
		{"a state that is no word", NodeState{Pods: &Pods{Named: []NamedPod{{"shop", "web", "Captured!", "", 0}}}}, "words in lower case"},
		{"a cause that is no word", NodeState{Pods: &Pods{Named: []NamedPod{{"shop", "web", "exempt", "no proxy", 0}}}}, "words in lower case"},
		{"a UID of a pod, in full", NodeState{Pods: &Pods{Known: []string{"beef0001-0000"}}}, `"beef0001-0000"`},
		{"a UID of no pod", NodeState{Pods: &Pods{Known: []string{"beef0001", "x"}}}, `"x"`},
		{"too many findings", NodeState{Findings: slices.Repeat(Findings{{Severity: Problem}}, maxFindings+1)}, "9 findings"},
		{"too many notes", NodeState{Findings: slices.Repeat(Findings{{Severity: Note}}, maxNotes+1)}, "5 notes"},
		{"a long version", NodeState{Version: text(maxText + 1)}, "301 bytes"},
		{"a long mode", NodeState{Mode: Mode(text(maxText + 1))}, "301 bytes"},
		{"a long desired state", NodeState{Desired: text(maxText + 1)}, "301 bytes"},
		{"a long backend", NodeState{Backend: text(maxText + 1)}, "301 bytes"},
		{"a long warning", NodeState{Findings: Findings{{Severity: Warning, Reason: text(maxText + 1)}}}, "301 bytes"},
		{"a long warning's code", NodeState{Findings: Findings{{Code(text(maxText + 1)), Warning, "", "short", ""}}}, "301 bytes"},
		{"a long next step", NodeState{Findings: Findings{{Severity: Warning, Next: text(maxText + 1)}}}, "301 bytes"},
		{"a long note", NodeState{Findings: Findings{{Severity: Note, Reason: "short"}, {Severity: Note, Reason: text(maxText + 1)}}}, "301 bytes"},
		{"a long part", NodeState{Findings: Findings{{Severity: Problem, Subject: text(maxText + 1)}}}, "301 bytes"},
		{"a long reason", NodeState{Findings: Findings{{Severity: Problem, Reason: text(maxText + 1)}}}, "301 bytes"},
		{"a long code", NodeState{Findings: Findings{{Severity: Note, Code: Code(text(maxText + 1))}}}, "301 bytes"},
	} {
		got, err := DecodeNode(string(encodeState(newNodeDocument(test.state))))
		if test.want == "" && (err != nil || !cmp.Equal(got, test.state)) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !cmp.Equal(got, NodeState{})) {
			t.Errorf("%s: %+v, %v", test.name, got, err)
		}
		if _, err := DecodeNode(test.state.Encode()); err != nil && !strings.HasPrefix(test.name, "a negative re") { // an agent counts up from zero
			t.Errorf("%s, as an agent writes it: %v", test.name, err)
		}
		if test.state.Pods == nil {
			continue
		}
		if _, err := DecodePods(encodeState(test.state.Pods)); (err == nil) != (test.want == "") {
			t.Errorf("%s, as pods alone: %v", test.name, err)
		}
	}
}

// TestTooManyCodes names what exceeds its limit in a state that no agent would write.
func TestTooManyCodes(t *testing.T) {
	t.Parallel()
	document := newNodeDocument(NodeState{Findings: Findings{{Severity: Note}}})
	document.Codes = make([]Code, maxNotes+1)
	const want = "0 findings, 1 notes and 5 codes of notes: expected at most 8, 4 and 4"
	if _, err := DecodeNode(string(encodeState(document))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestWorstFirst names the pods without capture before those that are exempt on purpose.
func TestWorstFirst(t *testing.T) {
	t.Parallel()
	var pods Pods
	for i := range 300 {
		pods.Named = append(pods.Named, NamedPod{"shop", fmt.Sprintf("a%03d", i), "exempt", "no_proxy", 0})
	}
	pods.Named = append(pods.Named, NamedPod{"shop", "z", "uncaptured", "", 0})
	read, err := DecodePods(pods.Encode())
	if err != nil || len(read.Named) != 100 || read.Named[0].Name != "z" || read.Omitted != 201 {
		t.Errorf("%d named, the first is %+v, %d omitted, %v", len(read.Named), read.Named[0], read.Omitted, err)
	}
}

// TestLacks never says that a pod is missing if not all that were counted are known.
func TestLacks(t *testing.T) {
	t.Parallel()
	whole := Pods{States: map[Code]int{"captured": 1, "exempt": 1}, Known: []string{"beef0001", "beef0002"}}
	for _, test := range []struct {
		pods Pods
		uid  string
		want bool
	}{
		{whole, "beef0001-0000-4000-8000-000000000000", false},
		{whole, "beef0003-0000-4000-8000-000000000000", true},
		{Pods{States: whole.States, Known: whole.Known[:1]}, "beef0003-0000-4000-8000-000000000000", false},
		{Pods{States: whole.States}, "beef0003-0000-4000-8000-000000000000", false}, // of an older agent
	} {
		if got := test.pods.Lacks(test.uid); got != test.want {
			t.Errorf("%+v lacks %s: %v, want %v", test.pods, test.uid, got, test.want)
		}
	}
}
