// SPDX-License-Identifier: Apache-2.0

// Command bench prints what the plugin costs, next to the least it could cost:
// the floor, a program that does the same work and decides nothing. It asserts
// nothing; machines differ, ratios less so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// effort is how often each thing is measured.
type effort struct {
	runs    int // of each kind of call
	adds    int // of a pod with a list of one length
	rounds  int // of connections, of each length in turn
	batches int // of ADDs at the same moment

	repairs     int           // of our entry, by the agent
	pause, idle time.Duration // between two repairs; for the agent at rest, and with events
}

var (
	thorough = effort{runs: 300, adds: 25, rounds: 25, batches: 10, repairs: 100, pause: 7 * time.Second, idle: 5 * time.Minute}
	quick    = effort{runs: 25, adds: 5, rounds: 5, batches: 2, repairs: 4, pause: 7 * time.Second, idle: 20 * time.Second}
)

func main() {
	chosen := thorough
	n := flag.Int("n", 0, fmt.Sprintf("runs of each kind of call (default %d, or %d with -quick)", thorough.runs, quick.runs))
	only := flag.String("only", "", "the one part to measure: calls, instead, lists, parallel, crowd or agent (default all)")
	fast := flag.Bool("quick", false, "measure less often: takes seconds, with less exact figures")
	flag.Parse()
	if *fast {
		chosen = quick
	}
	if *n > 0 {
		chosen.runs = *n
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, chosen, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, chosen effort, only string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run it with sudo")
	}
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	found := false
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"calls", func() error { return b.verbs(chosen.runs) }},
		{"instead", func() error { return b.instead(chosen.runs / 3) }},
		{"lists", func() error { return b.growth(chosen) }},
		{"parallel", func() error { return b.parallel(chosen.batches) }},
		{"crowd", func() error { return b.crowd(chosen.batches) }},
		{"agent", func() error { return b.agent(chosen) }},
	} {
		if only != "" && only != part.name {
			continue
		}
		found = true
		if err := part.measure(); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("-only is %q: expected calls, instead, lists, parallel, crowd or agent", only)
	}
	return nil
}
