// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestSample expects each kind of removal of the sample to be noticed or not.
func TestSample(t *testing.T) {
	lab.RequireTime(t)
	sources, err := load(t.Context(), []string{"./testdata/sample"})
	if err != nil || len(sources) != 1 {
		t.Fatalf("%d packages, %v", len(sources), err)
	}
	o, err := try(t.Context(), sources[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{
		`branch: n == 2`, `case: "unseen"`, `element: "unseen"`, `entry: "unseen": 2`, `field: Unseen: "b"`,
		`operand: b`, `statement: b = 2`, `statement: n = 20`,
	}; !slices.Equal(texts(o.lived), want) {
		t.Errorf("not noticed are %q, want %q", texts(o.lived), want)
	}
	if want := []string{`statement: pointer = nil`}; !slices.Equal(texts(o.unreached), want) {
		t.Errorf("not run are %q, want %q", texts(o.unreached), want)
	}
	if o.killed != 8 {
		t.Errorf("%d are noticed, want 8", o.killed)
	}
	if got := fmt.Sprintf("%.0f %.0f", o.efficacy(), o.coverage()); got != "50 94" {
		t.Errorf("efficacy and coverage are %s", got)
	}
}

func texts(removals []removal) (texts []string) {
	for _, r := range removals {
		texts = append(texts, r.kind+": "+r.text)
	}
	slices.Sort(texts)
	return texts
}
