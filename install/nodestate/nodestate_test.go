// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestForm pins the form: a kubectl plugin and an agent of different versions share it.
func TestForm(t *testing.T) {
	t.Parallel()
	state := State{
		Version: "v1.2.3", Mode: "dropin", Desired: "present",
		Findings: []Finding{{Part: "runtime", Reason: "the runtime does not answer", Waiting: true}},
		Pods: &Pods{
			States: map[string]int{"captured": 7, "exempt": 1, "uncaptured": 1, "drifted": 0}, Exempt: map[string]int{"no_proxy": 1},
			Named: []Pod{{"shop", "old", "exempt", "no_proxy"}, {"shop", "web", "uncaptured", ""}}, Omitted: 2,
			Known: []string{"beef0002", "beef0001", "in the CLEAR"},
		},
	}
	const want = `{"format":1,"version":"v1.2.3","mode":"dropin","desired":"present",` +
		`"findings":[{"part":"runtime","reason":"the runtime does not answer","waiting":true}],` +
		`"pods":{"states":{"captured":7,"exempt":1,"uncaptured":1},"exempt":{"no_proxy":1},` +
		`"named":[{"namespace":"shop","name":"web","state":"uncaptured"},{"namespace":"shop","name":"old","state":"exempt","cause":"no_proxy"}],"omitted":2,"known":["beef0001","beef0002"]}}`
	if diff := cmp.Diff(want, state.Encode()); diff != "" {
		t.Error(diff)
	}
	read, err := Decode(want)
	if err != nil || read.Encode() != want {
		t.Errorf("read as %s, %v", read.Encode(), err)
	}
	if _, err := Decode(strings.Replace(want, `"format":1`, `"format":1,"later":{}`, 1)); err != nil {
		t.Errorf("with a field of a later version: %v", err)
	}
	if _, err := Decode(strings.Replace(want, `"format":1`, `"format":2`, 1)); !errors.Is(err, ErrFormat) {
		t.Errorf("of another format: %v", err)
	}
	for _, bad := range []string{"", "{", "[]", `{"format":1,"version":"` + strings.Repeat("x", MaxSize) + `"}`} {
		if _, err := Decode(bad); err == nil {
			t.Errorf("%.40q was read", bad)
		}
	}
}

// TestSizeIsBounded encodes as many pods as a hostile user could make, with names of
// any form, and texts of any length.
func TestSizeIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<\x00é", 1<<16)
	hostile := Pods{States: map[string]int{}, Exempt: map[string]int{}}
	for i := range 5000 {
		hostile.Known = append(hostile.Known, fmt.Sprintf("%08x", i), long)
		hostile.States[fmt.Sprint("state", i, long[:64])] = 1
		hostile.Exempt[strings.Repeat("a", 1+i%32)] = 1
		name := fmt.Sprintf("%s%d", strings.Repeat("a", 248), i%9973)
		hostile.Named = append(hostile.Named, Pod{strings.Repeat("n", 63), name, "uncaptured", ""}, Pod{"shop", long, "uncaptured", ""},
			Pod{long, "web", "uncaptured", ""}, Pod{"shop", "web", "uncaptured", long}, Pod{"shop", "a/b", "uncaptured", ""})
	}
	state := State{Version: long, Mode: long, Desired: long, Pods: &hostile}
	for range 500 {
		state.Findings = append(state.Findings, Finding{long, long, false})
	}
	text := state.Encode()
	if len(text) > MaxSize {
		t.Fatalf("%d bytes", len(text))
	}
	read, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if named := len(read.Pods.Named); named == 0 || named > 100 || named+read.Pods.Omitted != len(hostile.Named) {
		t.Errorf("%d pods are named and %d omitted, of %d", named, read.Pods.Omitted, len(hostile.Named))
	}
	if document := hostile.Encode(); len(document) > MaxSize {
		t.Errorf("the pods alone take %d bytes", len(document))
	}
}

// TestWorstFirst names the pods without capture before those that are exempt on purpose.
func TestWorstFirst(t *testing.T) {
	t.Parallel()
	var pods Pods
	for i := range 300 {
		pods.Named = append(pods.Named, Pod{"shop", fmt.Sprintf("a%03d", i), "exempt", "no_proxy"})
	}
	pods.Named = append(pods.Named, Pod{"shop", "z", "uncaptured", ""})
	read, err := DecodePods(pods.Encode())
	if err != nil || len(read.Named) != 100 || read.Named[0].Name != "z" || read.Omitted != 201 {
		t.Errorf("%d named, the first is %+v, %d omitted, %v", len(read.Named), read.Named[0], read.Omitted, err)
	}
}

// TestLacks never says that a pod is missing if not all that were counted are known.
func TestLacks(t *testing.T) {
	t.Parallel()
	whole := Pods{States: map[string]int{"captured": 1, "exempt": 1}, Known: []string{"beef0001", "beef0002"}}
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
