// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"reflect"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
)

// TestIntervalsIgnoreTheClock wants a monotonic reading in each time that a guard keeps:
// a step of the node's clock then changes none of its intervals, because time.Sub, Before
// and After ignore the clock where both times have one.
func TestIntervalsIgnoreTheClock(t *testing.T) {
	t.Parallel()
	n, g := newPodNode(t, Settings{Policy: InPlace, Round: time.Minute, BaselineDir: t.TempDir() + "/guard"})
	n.sandbox.Namespace = "excluded"
	g.Round(t.Context())
	g.watched["web"].repairs.add(time.Now())
	g.examiner.limits.refusal(&g.watched["web"].repairs, time.Now())
	g.examiner.breaker.trip(time.Second, nil)
	g.asker.first.trip(time.Second, nil)
	g.asker.known.trip(time.Second, nil)
	n.set(failingList)
	g.Round(t.Context()) // has no listing
	n.set(hangingList)
	g.lister.pending = g.lister.begin(t.Context())
	if state := g.watched["web"].finding.Code; state != report.Exempt {
		t.Fatalf("the pod is %s", state)
	}
	kept := times{t: t, seen: map[uintptr]bool{}}
	kept.walk("guard", reflect.ValueOf(g).Elem())
	kept.walk("guard.progress", reflect.ValueOf(*g.progress.last.Load()))
	if want := 11; kept.found < want {
		t.Errorf("%d times are set, want %d", kept.found, want)
	}
}

// times finds the times in a value.
type times struct {
	t     *testing.T
	found int // that are not zero
	seen  map[uintptr]bool
}

func (f *times) walk(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && !f.seen[v.Pointer()] {
			f.seen[v.Pointer()] = true
			f.walk(path, v.Elem())
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			f.walk(path+"["+key.String()+"]", v.MapIndex(key))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			f.check(path, v)
			return
		}
		for i := range v.NumField() {
			f.walk(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
}

// check looks at the bit of a time that says that it has a monotonic reading. The fields
// that hold it may not be read as a time.Time.
func (f *times) check(path string, v reflect.Value) {
	const hasMonotonic = 1 << 63
	wall, rest := v.FieldByName("wall").Uint(), v.FieldByName("ext").Int()
	if wall == 0 && rest == 0 {
		return
	}
	f.found++
	if f.t.Logf("%s", path); wall&hasMonotonic == 0 {
		f.t.Errorf("%s has no monotonic reading", path)
	}
}
