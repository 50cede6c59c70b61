// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"testing"
	"time"
)

// TestPasses leaves out a package on a kernel only for the digest with which it passed there.
func TestPasses(t *testing.T) {
	t.Parallel()
	passes := Passes{t.TempDir()}
	if _, passed := passes.Last(All[0], "e2e/guard", "one"); passed {
		t.Error("passed before any run")
	}
	if err := passes.Record(All[0], "e2e/guard", "one"); err != nil {
		t.Fatal(err)
	}
	if when, passed := passes.Last(All[0], "e2e/guard", "one"); !passed || time.Since(when) > time.Hour {
		t.Errorf("passed: %v, at %s", passed, when)
	}
	if _, passed := passes.Last(All[0], "e2e/guard", "two"); passed {
		t.Error("passed with another digest")
	}
	if _, passed := passes.Last(All[1], "e2e/guard", "one"); passed {
		t.Error("passed on another kernel")
	}
	if _, passed := passes.Last(All[0], "e2e/traffic", "one"); passed {
		t.Error("another package passed")
	}
}

// TestDigest covers the kernel, its command line and all that a guest executes.
func TestDigest(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, guest := range []Guest{
		{},
		{Image: Image{Package: "linux-image-6.1.0-2"}},
		{Append: "ipv6.disable=1"},
		{Suite: Suite{[]byte("programs")}},
		{Job: Job{Modules: []string{"nf_conntrack"}}},
	} {
		guest.Image.Architecture = AMD64
		digest, err := guest.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if seen[digest] {
			t.Errorf("%+v has the digest of another guest", guest)
		}
		seen[digest] = true
	}
}

// TestPassed expects a run to pass only if each of its tests did, and none was skipped.
func TestPassed(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]int{
		"=== RUN   TestA\n--- PASS: TestA (0.10s)\n    --- PASS: TestA/b (0.10s)\n--- PASS: TestC (0.00s)\nPASS\n": 2,
		"=== RUN   TestA\n--- PASS: TestA (0.10s)\n--- SKIP: TestC (0.00s)\nPASS\n":                                0,
		"=== RUN   TestA\n--- PASS: TestA (0.10s)\n--- FAIL: TestC (0.00s)\nFAIL\n":                                0,
		"testing: warning: no tests to run\nPASS\n":                                                                0,
	} {
		count, err := Selection{}.Passed(Outcome{Ended: &Ended{}, Output: output})
		if count != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d passed, %v", output, count, err)
		}
	}
	if _, err := (Selection{}).Passed(Outcome{Ended: &Ended{Status: 2}, Output: "\n--- PASS: TestA (0.10s)\npanic\n"}); err == nil {
		t.Error("a run that ended with status 2 passed")
	}
	selected := Selection{Package: "e2e/traffic", Tests: []string{"TestA/b"}}
	for output, passed := range map[string]bool{
		"--- PASS: TestA (0.10s)\n    --- PASS: TestA/b (0.10s)\nPASS\n": true,
		"--- PASS: TestA (0.10s)\nPASS\n":                                false,
	} {
		if err := selected.Failure(Outcome{Ended: &Ended{}, Output: output}); (err == nil) != passed {
			t.Errorf("%q: %v", output, err)
		}
	}
}
