// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

const module = "github.com/capture-cni/capture-cni/"

// short is the shortest time with which a package has a row of its own in the table.
const short = time.Second

// slow is the shortest time with which a test or subtest has a row of its own. That of a test
// is without the time of its parallel subtests.
const slow = 10.0 // seconds

// test is the name of a test in a package; the name of the package's own output is empty.
type test struct{ pkg, name string }

// report is what has been seen of a run of tests.
type report struct {
	out     io.Writer
	now     func() time.Time
	began   time.Time
	total   int // packages
	ended   int
	running map[string]time.Time // since when, by package
	output  map[test]*strings.Builder
	rows    []row
	slow    []event        // ends of tests
	lacking map[string]int // skipped tests, by what they need
}

// row is a package that has ended.
type row struct {
	pkg    string
	took   time.Duration
	result string
}

func newReport(out io.Writer, total int, now func() time.Time) *report {
	return &report{
		out: out, now: now, began: now(), total: total,
		running: map[string]time.Time{}, output: map[test]*strings.Builder{}, lacking: map[string]int{},
	}
}

// follow prints events as they come, and after each silence what still runs.
func (r *report) follow(events <-chan event, failed <-chan error) error {
	tick := time.NewTimer(silence)
	defer tick.Stop()
	for {
		select {
		case e, open := <-events:
			if !open {
				select {
				case err := <-failed:
					return err
				default:
					return nil
				}
			}
			if r.see(e) {
				tick.Reset(silence)
			}
		case <-tick.C:
			r.still()
			tick.Reset(silence)
		}
	}
}

// see takes an event in, and says whether it printed something.
func (r *report) see(e event) (printed bool) {
	key := test{e.Package, e.Test}
	if e.Test != "" && e.Elapsed >= slow {
		r.slow = append(r.slow, e)
	}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
		return true
	case e.Action == "start":
		r.running[e.Package] = r.now()
	case e.Action == "output":
		if r.output[key] == nil {
			r.output[key] = &strings.Builder{}
		}
		r.output[key].WriteString(e.Output)
	case e.Action == "fail" && e.Test != "":
		fmt.Fprint(r.out, r.output[key])
		delete(r.output, key)
		return true
	case e.Action == "skip" && e.Test != "":
		return r.skipped(key)
	case e.Action == "pass" && e.Test != "":
		delete(r.output, key)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		return r.end(e)
	}
	return false
}

// skipped counts a skipped test, and prints one that was not tested for a reason that is
// not this machine's.
func (r *report) skipped(key test) (printed bool) {
	said := r.output[key].String()
	delete(r.output, key)
	if _, what, found := strings.Cut(said, "this test needs "); found {
		what, _, _ = strings.Cut(what, "\n")
		r.lacking[what]++
		return false
	}
	fmt.Fprint(r.out, said)
	return true
}

// end closes a package. One without tests is not reported.
func (r *report) end(e event) (printed bool) {
	own := r.output[test{pkg: e.Package}]
	delete(r.output, test{pkg: e.Package})
	delete(r.running, e.Package)
	r.ended++
	said, took, result := "", time.Duration(e.Elapsed*float64(time.Second)), "ok"
	if own != nil {
		said = own.String()
	}
	switch {
	case e.Action == "fail":
		result = "FAILED"
		fmt.Fprint(r.out, said)
	case strings.Contains(said, "[no test files]"):
		return false
	case strings.Contains(said, "(cached)"):
		result = "cached"
	}
	r.rows = append(r.rows, row{strings.TrimPrefix(e.Package, module), took, result})
	fmt.Fprintf(r.out, "%-7s %-45s %8s  %d of %d\n", result, strings.TrimPrefix(e.Package, module), seconds(took), r.ended, r.total)
	return true
}

// still says what runs.
func (r *report) still() {
	var lines []string
	for _, pkg := range slices.Sorted(maps.Keys(r.running)) {
		lines = append(lines, fmt.Sprintf("%s (%s)", strings.TrimPrefix(pkg, module), seconds(r.now().Sub(r.running[pkg]))))
	}
	if len(lines) == 0 {
		lines = []string{"the compiler"}
	}
	fmt.Fprintf(r.out, "running %s\n", strings.Join(lines, ", "))
}

// table prints the packages and the slow tests, the slowest first, and what was left out.
func (r *report) table() {
	slices.SortStableFunc(r.rows, func(a, b row) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintf(r.out, "\n%-45s %8s\n", "package", "time")
	others, failed := 0, 0
	for _, row := range r.rows {
		mark := ""
		if row.result == "FAILED" {
			failed, mark = failed+1, "  FAILED"
		} else if row.took < short {
			others++
			continue
		}
		fmt.Fprintf(r.out, "%-45s %8s%s\n", row.pkg, seconds(row.took), mark)
	}
	fmt.Fprintf(r.out, "%-45s\n%-45s %8s\n", fmt.Sprintf("%d others, each in less than %s", others, short), "all, side by side", seconds(r.now().Sub(r.began)))
	slices.SortStableFunc(r.slow, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	for _, e := range r.slow {
		fmt.Fprintf(r.out, "slow: %s.%s %.1f s\n", strings.TrimPrefix(e.Package, module), e.Test, e.Elapsed)
	}
	if failed > 0 {
		fmt.Fprintf(r.out, "%d of %d packages failed\n", failed, len(r.rows))
	}
	for _, what := range slices.Sorted(maps.Keys(r.lacking)) {
		fmt.Fprintf(r.out, "left out: %d tests that need %s\n", r.lacking[what], what)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
