// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// job is one run of go test, and its line in the output.
type job struct {
	name  string
	alone bool
	run   func() (fault string, err error)
}

var errInterrupted = errors.New("interrupted")

// runAll runs the tests of all mutants without a mutation first: a test that fails
// anyway proves nothing.
func runAll(ctx context.Context, mutants []mutant) (err error) {
	w, err := newWorkshop()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	began := time.Now()
	unchanged := unchangedJobs(w, mutants)
	faults := runJobs(ctx, "passes", unchanged)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if faults > 0 {
		return fmt.Errorf("%d runs of tests do not pass without a mutation", faults)
	}
	fmt.Printf("all tests pass without a mutation, after %s\n", time.Since(began).Round(time.Second))
	var jobs []job
	for _, m := range mutants {
		jobs = append(jobs, job{m.name, m.by.cost == root, func() (string, error) { return w.runMutant(m) }})
	}
	faults = runJobs(ctx, "killed", jobs)
	fmt.Printf("%d of %d mutants killed, after %s\n", len(jobs)-faults, len(jobs), time.Since(began).Round(time.Second))
	if ctx.Err() != nil {
		return errInterrupted
	}
	if faults > 0 {
		return fmt.Errorf("%d mutants are not killed", faults)
	}
	return nil
}

// unchangedJobs returns a job for each group of tests.
func unchangedJobs(w workshop, mutants []mutant) []job {
	tests := map[group][]test{}
	for _, m := range mutants {
		tests[m.by.group()] = append(tests[m.by.group()], m.by)
	}
	var jobs []job
	for g, own := range tests {
		jobs = append(jobs, job{"tests of ./" + g.pkg, g.alone, func() (string, error) { return w.runUnchanged(own) }})
	}
	slices.SortFunc(jobs, func(a, b job) int { return strings.Compare(a.name, b.name) })
	return jobs
}

// runJobs runs jobs side by side, and then those that need the machine for themselves:
// their tests send packets and measure times. It prints a line for each, and returns the
// number of faults.
func runJobs(ctx context.Context, good string, jobs []job) (faults int) {
	var mu sync.Mutex
	finished := 0
	run := func(j job) {
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		fault, err := j.run()
		if err != nil {
			fault = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		finished++
		fmt.Printf("[%d/%d] %6.1fs  %s: %s\n", finished, len(jobs), time.Since(began).Seconds(), j.name, result(good, fault))
		if fault != "" {
			faults++
		}
	}
	queue := make(chan job)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range queue {
				run(j)
			}
		})
	}
	for _, j := range jobs {
		if !j.alone {
			queue <- j
		}
	}
	close(queue)
	workers.Wait()
	for _, j := range jobs {
		if j.alone {
			run(j)
		}
	}
	return faults + len(jobs) - finished // after an interrupt, some did not run
}

func result(good, fault string) string {
	if fault == "" {
		return good
	}
	return strings.ReplaceAll(fault, "\n", "\n\t")
}
