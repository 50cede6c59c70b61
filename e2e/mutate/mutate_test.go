// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestSample expects each kind of mutant of the sample to be noticed or not. One is noticed by
// a test that fails by itself, and is tried again because it is an exception.
func TestSample(t *testing.T) {
	lab.RequireTime(t)
	sources, err := load(t.Context(), []string{"./testdata/sample"})
	if err != nil || len(sources) != 1 {
		t.Fatalf("%d packages, %v", len(sources), err)
	}
	trial, err := prepare(t.Context(), sources[0])
	if err != nil {
		t.Fatal(err)
	}
	o, err := trial.run(t.Context(), exceptions{"e2e/mutate/testdata/sample.returned | statement: n = 3": "it is returned otherwise"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		`arithmetic: (n - 1) / 1`, `arithmetic: -4 * time.Second`, `arithmetic: -n % 1`, `arithmetic: n - 1`, `boundary: n >= 5`, `branch: n == 2`,
		`case: "unseen"`, `element: "unseen"`, `entry: "unseen": 2`, `field: Unseen: "b"`, `increment: unseen--`, `negative: -4`, `negative: -n`,
		`operand: b`, `statement: b = 2`, `statement: n = 20`, `statement: n = 3`, `statement: unseen--`,
	}; !slices.Equal(texts(o.lived), want) {
		t.Errorf("not noticed are %q, want %q", texts(o.lived), want)
	}
	if want := []string{`statement: pointer = nil`}; !slices.Equal(texts(o.unreached), want) {
		t.Errorf("not run are %q, want %q", texts(o.unreached), want)
	}
	if len(o.killed) != 22 {
		t.Errorf("%d are noticed, want 22", len(o.killed))
	}
	if got := fmt.Sprintf("%.0f %.0f", o.efficacy(), o.coverage()); got != "55 98" {
		t.Errorf("efficacy and coverage are %s", got)
	}
}

func texts(mutants []mutant) (texts []string) {
	for _, r := range mutants {
		texts = append(texts, r.kind+": "+r.text)
	}
	slices.Sort(texts)
	return texts
}
