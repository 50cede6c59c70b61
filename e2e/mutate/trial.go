// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// outcome is what the tests of one package noticed.
type outcome struct {
	killed           []mutant
	lived, unreached []mutant
	timedOut         int // of those killed
	took             time.Duration
}

// efficacy is the share of the mutants in code that the tests run that they notice, and
// coverage the share of all that they run, in percent.
func (o outcome) efficacy() float64 { return percent(len(o.killed), len(o.killed)+len(o.lived)) }

func (o outcome) coverage() float64 {
	reached := len(o.killed) + len(o.lived)
	return percent(reached, reached+len(o.unreached))
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// trial runs the tests of a package against its mutants.
type trial struct {
	program
	mutants []mutant
	tests   []testRun

	mu      sync.Mutex
	killers map[string]string // the last test that noticed a mutant, by function
	outcome
}

// prepare compiles a package with its mutants, below a directory of its own.
func prepare(ctx context.Context, s *source) (*trial, error) {
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(scratch, 0o755); err != nil { // some tests become another user
		return nil, err
	}
	in := instrument(s)
	t := &trial{program: program{s.dir, filepath.Join(scratch, "tests"), scratch}, mutants: in.mutants, killers: map[string]string{}}
	return t, build(ctx, s, in, scratch, t.path)
}

// run runs each test alone, to know which code it runs, and then each mutant against the tests
// that run its code. The more of their time the tests wait, the more of them run at a time.
func (t *trial) run(ctx context.Context, reasons exceptions) (o outcome, err error) {
	began := time.Now()
	defer func() { err = errors.Join(err, os.RemoveAll(t.scratch)) }()
	names, err := t.list(ctx)
	if err != nil {
		return o, err
	}
	tests, failed := make([]testRun, len(names)), make([]error, len(names))
	parallel(2*runtime.GOMAXPROCS(0), len(names), func(i int) { tests[i], failed[i] = t.alone(ctx, names[i]) })
	if err := errors.Join(failed...); err != nil {
		return o, err
	}
	t.tests = tests
	parallel(workers(tests), len(t.mutants), func(i int) {
		if ctx.Err() == nil {
			t.try(ctx, i+1)
		}
	})
	t.repeat(ctx, reasons)
	for _, list := range [][]mutant{t.lived, t.unreached} {
		slices.SortFunc(list, func(a, b mutant) int { return cmp.Compare(a.String(), b.String()) })
	}
	t.took = time.Since(began)
	return t.outcome, ctx.Err()
}

// workers returns how many programs run at a time.
func workers(tests []testRun) int {
	var took, cpu time.Duration
	for _, test := range tests {
		took, cpu = took+test.took, cpu+test.cpu
	}
	return runtime.GOMAXPROCS(0) * int(min(max(1, took/max(1, cpu)), 8))
}

// try runs the tests of one mutant: first the one that noticed the mutant before it, then the
// others, the quick ones first.
func (t *trial) try(ctx context.Context, n int) {
	m := t.mutants[n-1]
	t.mu.Lock()
	killer := t.killers[m.function]
	t.mu.Unlock()
	batches := t.batches(n, killer)
	for _, batch := range batches {
		noticed, err := t.attempt(ctx, n, batch)
		if err != nil {
			t.note(&t.killed, m)
			t.mu.Lock()
			defer t.mu.Unlock()
			if noticed != "" {
				t.killers[m.function] = noticed
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.timedOut++
			}
			return
		}
	}
	if len(batches) == 0 {
		t.note(&t.unreached, m)
		return
	}
	t.note(&t.lived, m)
}

// repeat tries mutants again, one at a time, that a test noticed though an exception says that
// none can: a test that waits may fail by itself while others run.
func (t *trial) repeat(ctx context.Context, reasons exceptions) {
	killed := t.killed
	t.killed = nil
	for _, m := range killed {
		if _, found := reasons.find(m); found {
			t.try(ctx, slices.Index(t.mutants, m)+1)
		} else {
			t.killed = append(t.killed, m)
		}
	}
}

// attempt runs a batch. If that takes too long, it finds out whether the machine is busy, and
// then takes more time.
func (t *trial) attempt(ctx context.Context, n int, b batch) (noticed string, err error) {
	mutant := "MUTANT=" + strconv.Itoa(n)
	noticed, _, err = t.program.run(ctx, b.timeout, mutant, b.tests...)
	if !errors.Is(err, context.DeadlineExceeded) {
		return noticed, err
	}
	began := time.Now()
	_, _, without := t.program.run(ctx, 5*time.Minute, "MUTANT=0", b.tests...)
	if took := time.Since(began); without == nil && 2*took > b.timeout {
		noticed, _, err = t.program.run(ctx, 4*took, mutant, b.tests...)
	}
	return noticed, err
}

// batch has tests that one program runs, in the order of its sources.
type batch struct {
	tests   []string
	timeout time.Duration
}

// batches returns the tests that run a mutant's code: the quick ones, and then the others, those
// together that take about as long as each other. The last killer is the first of its kind.
func (t *trial) batches(n int, killer string) (batches []batch) {
	tests := slices.DeleteFunc(slices.Clone(t.tests), func(test testRun) bool { return !test.reached[n] })
	order := func(test testRun) int {
		switch quick := test.cost() <= quickTest; {
		case quick && test.name == killer:
			return 0
		case quick:
			return 1
		case test.name == killer:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(tests, func(a, b testRun) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.cost(), b.cost()))
	})
	limit := time.Duration(0)
	for i, test := range tests {
		if i == 0 || test.cost() > limit || tests[i-1].name == killer {
			batches = append(batches, batch{timeout: 2 * time.Second})
			limit = max(2*test.cost(), quickTest)
		}
		last := &batches[len(batches)-1]
		last.tests = append(last.tests, test.name)
		last.timeout += 4 * test.took
	}
	return batches
}

func (t *trial) note(list *[]mutant, m mutant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*list = append(*list, m)
}

// parallel calls a function for the numbers below n, some of them at a time.
func parallel(atOnce, n int, do func(i int)) {
	var running errgroup.Group
	running.SetLimit(atOnce)
	for i := range n {
		running.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = running.Wait()
}
