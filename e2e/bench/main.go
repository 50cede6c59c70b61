// SPDX-License-Identifier: Apache-2.0

// Command bench prints what the plugin costs, beside the least it could: the
// floor, a program that does the same work and decides nothing. It asserts
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
	pause, idle time.Duration // between two of them; with nothing to do
}

var (
	thorough = effort{runs: 300, adds: 25, rounds: 25, batches: 10, repairs: 100, pause: 7 * time.Second, idle: 5 * time.Minute}
	quick    = effort{runs: 25, adds: 5, rounds: 5, batches: 2, repairs: 4, pause: 7 * time.Second, idle: 20 * time.Second}
)

func main() {
	asked := thorough
	n := flag.Int("n", 0, fmt.Sprintf("runs of each kind of call (default %d, or %d with -quick)", thorough.runs, quick.runs))
	hurry := flag.Bool("quick", false, "seconds instead of minutes, and rougher figures")
	flag.Parse()
	if *hurry {
		asked = quick
	}
	if *n > 0 {
		asked.runs = *n
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, asked); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, asked effort) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run it with sudo")
	}
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, part := range []func() error{
		func() error { return b.verbs(asked.runs) },
		func() error { return b.growth(asked) },
		func() error { return b.parallel(asked.batches) },
		func() error { return b.agent(asked) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}
