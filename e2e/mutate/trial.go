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
// that run its code. Tests wait more than they compute, so there are more of them at a time
// than cores.
func (t *trial) run(ctx context.Context) (o outcome, err error) {
	began := time.Now()
	defer func() { err = errors.Join(err, os.RemoveAll(t.scratch)) }()
	names, err := t.list(ctx)
	if err != nil {
		return o, err
	}
	tests, failed := make([]testRun, len(names)), make([]error, len(names))
	parallel(len(names), func(i int) { tests[i], failed[i] = t.alone(ctx, names[i]) })
	if err := errors.Join(failed...); err != nil {
		return o, err
	}
	slices.SortStableFunc(tests, func(a, b testRun) int { return cmp.Compare(a.took, b.took) })
	t.tests = tests
	parallel(len(t.mutants), func(i int) {
		if ctx.Err() == nil {
			t.try(ctx, i+1)
		}
	})
	for _, list := range [][]mutant{t.lived, t.unreached} {
		slices.SortFunc(list, func(a, b mutant) int { return cmp.Compare(a.String(), b.String()) })
	}
	t.took = time.Since(began)
	return t.outcome, ctx.Err()
}

// try runs the tests of one mutant: first the one that noticed the mutant before it.
func (t *trial) try(ctx context.Context, n int) {
	m := t.mutants[n-1]
	var all []string
	var took time.Duration
	for _, test := range t.tests {
		if test.reached[n] {
			all = append(all, test.name)
			took += test.took
		}
	}
	t.mu.Lock()
	killer := t.killers[m.function]
	t.mu.Unlock()
	if i := slices.Index(all, killer); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	batches := [][]string{all}
	if len(all) > 2 { // a program runs tests in the order of its sources
		batches = [][]string{all[:1], all[1:]}
	}
	for _, tests := range batches {
		if len(tests) == 0 {
			t.note(&t.unreached, m)
			return
		}
		noticed, err := t.program.run(ctx, 5*time.Second+2*took, "MUTANT="+strconv.Itoa(n), tests...)
		if err != nil {
			t.note(&t.killed, m)
			t.mu.Lock()
			defer t.mu.Unlock()
			t.killers[m.function] = noticed
			if errors.Is(err, context.DeadlineExceeded) {
				t.timedOut++
			}
			return
		}
	}
	t.note(&t.lived, m)
}

func (t *trial) note(list *[]mutant, m mutant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*list = append(*list, m)
}

// parallel calls a function for the numbers below n.
func parallel(n int, do func(i int)) {
	var workers sync.WaitGroup
	numbers := make(chan int)
	for range 2 * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range numbers {
				do(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	workers.Wait()
}
