// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

const stream = `{"Action":"start","Package":"github.com/capture-cni/capture-cni/a"}
{"Action":"start","Package":"github.com/capture-cni/capture-cni/b"}
{"Action":"output","Package":"github.com/capture-cni/capture-cni/a","Test":"TestGood","Output":"noise\n"}
{"Action":"pass","Package":"github.com/capture-cni/capture-cni/a","Test":"TestGood","Elapsed":1}
{"Action":"pass","Package":"github.com/capture-cni/capture-cni/a","Test":"TestSlow/a_case","Elapsed":10.04}
{"Action":"pass","Package":"github.com/capture-cni/capture-cni/a","Test":"TestSlower","Elapsed":12.3}
{"Action":"output","Package":"github.com/capture-cni/capture-cni/a","Test":"TestRoot","Output":"    x_test.go:1: this test needs root\n"}
{"Action":"skip","Package":"github.com/capture-cni/capture-cni/a","Test":"TestRoot","Elapsed":0}
{"Action":"output","Package":"github.com/capture-cni/capture-cni/a","Test":"TestGone","Output":"NOT TESTED: the mirror\n"}
{"Action":"skip","Package":"github.com/capture-cni/capture-cni/a","Test":"TestGone","Elapsed":0}
{"Action":"output","Package":"github.com/capture-cni/capture-cni/a","Output":"ok  \ta\t2.0s\n"}
{"Action":"pass","Package":"github.com/capture-cni/capture-cni/a","Elapsed":2}
{"Action":"output","Package":"github.com/capture-cni/capture-cni/b","Test":"TestBad","Output":"b_test.go:7: wrong\n"}
{"Action":"fail","Package":"github.com/capture-cni/capture-cni/b","Test":"TestBad","Elapsed":0.1}
{"Action":"fail","Package":"github.com/capture-cni/capture-cni/b","Elapsed":0.5}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1: undefined\n"}
{"Action":"output","Package":"github.com/capture-cni/capture-cni/d","Output":"?   \td\t[no test files]\n"}
{"Action":"skip","Package":"github.com/capture-cni/capture-cni/d","Elapsed":0}
{"Action":"output","Package":"github.com/capture-cni/capture-cni/e","Output":"ok  \te\t(cached)\n"}
{"Action":"pass","Package":"github.com/capture-cni/capture-cni/e","Elapsed":0}
`

const printed = `NOT TESTED: the mirror
ok      a                                                2.0 s  1 of 4
b_test.go:7: wrong
FAILED  b                                                0.5 s  2 of 4
c.go:1: undefined
cached  e                                                0.0 s  4 of 4

package                                           time
a                                                2.0 s
b                                                0.5 s  FAILED
1 others, each in less than 1s               
all, side by side                                0.0 s
slow: a.TestSlower 12.3 s
slow: a.TestSlow/a_case 10.0 s
1 of 3 packages failed
left out: 1 tests that need root
`

// TestReport prints what failed, what was slow or left out, and nothing else that passed.
func TestReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	began := time.Now()
	r := newReport(&out, packages([]string{"-count=1", "a", "b", "d", "e"}), func() time.Time { return began })
	if err := r.follow(decode(strings.NewReader(stream))); err != nil {
		t.Fatal(err)
	}
	r.table()
	if out.String() != printed {
		t.Errorf("printed is\n%s\nwant\n%s", out.String(), printed)
	}
	if err := r.follow(decode(strings.NewReader("no JSON"))); err == nil {
		t.Error("output that is no JSON is no error")
	}
	out.Reset()
	r.running["github.com/capture-cni/capture-cni/f"] = began
	if r.still(); out.String() != "running f (0.0 s)\n" {
		t.Errorf("still running is %q", out.String())
	}
}
