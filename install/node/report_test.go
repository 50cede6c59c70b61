// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFindingsOfAnAttemptExplain puts what an attempt to place an entry found in the place of
// what a check found of the same part, and leaves the other parts alone.
func TestFindingsOfAnAttemptExplain(t *testing.T) {
	t.Parallel()
	report := func(findings ...string) (r Report) {
		for i := 0; i < len(findings); i += 2 {
			r.Add(findings[i], errors.New(findings[i+1]))
		}
		return r
	}
	for name, tt := range map[string]struct{ now, earlier, want Report }{
		"both have the part":        {report("entry", "missing", "binary", "old"), report("entry", "no list", "token", "late"), report("binary", "old", "entry", "no list")},
		"only now":                  {report("entry", "missing"), report("token", "late"), report("entry", "missing")},
		"only earlier":              {report("binary", "old"), report("entry", "no list"), report("binary", "old")},
		"several findings replaced": {report("entry", "a", "entry", "b"), report("entry", "c", "entry", "d"), report("entry", "c", "entry", "d")},
	} {
		tt.now.Explain("entry", tt.earlier)
		if diff := cmp.Diff(tt.want, tt.now); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
