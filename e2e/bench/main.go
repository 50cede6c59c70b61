// SPDX-License-Identifier: Apache-2.0

// Command bench prints what the plugin costs, next to the floor, a program that does
// the same work with common libraries and decides nothing. It asserts
// nothing; machines differ, ratios less so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
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

	outages []time.Duration // of an API server
}

var (
	thorough = effort{runs: 300, adds: 25, rounds: 25, batches: 10, repairs: 100, pause: 7 * time.Second, idle: 5 * time.Minute, outages: []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute}}
	quick    = effort{runs: 25, adds: 5, rounds: 5, batches: 2, repairs: 4, pause: 7 * time.Second, idle: 20 * time.Second, outages: []time.Duration{10 * time.Second}}
)

func main() {
	chosen := thorough
	n := flag.Int("n", 0, fmt.Sprintf("runs of each kind of call (default %d, or %d with -quick)", thorough.runs, quick.runs))
	only := flag.String("only", "", "the parts to measure, separated by commas: calls, profile, instead, lists, packets, parallel, crowd, herd, agent (default all)")
	out := flag.String("out", "", "write the tables as JSON to this file, too")
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
	if err := run(ctx, chosen, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, chosen effort, only, out string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run it with sudo")
	}
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	measured := 0
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"calls", func() error { return b.verbs(chosen.runs) }},
		{"profile", func() error { return b.profile(chosen.runs / 3) }},
		{"instead", func() error { return b.instead(chosen.runs / 3) }},
		{"lists", func() error { return b.growth(chosen) }},
		{"packets", func() error { return b.packets(20 * chosen.rounds) }},
		{"parallel", func() error { return b.parallel(chosen.batches) }},
		{"crowd", func() error { return b.crowd(chosen.batches) }},
		{"herd", func() error { return b.herd(chosen.outages...) }},
		{"agent", func() error { return b.agent(chosen) }},
	} {
		if only != "" && !slices.Contains(names, part.name) {
			continue
		}
		measured++
		if err := part.measure(); err != nil {
			return err
		}
	}
	if measured < len(names) {
		return fmt.Errorf("-only is %q: expected some of calls, profile, instead, lists, packets, parallel, crowd, herd and agent", only)
	}
	if out != "" {
		return b.Write(out)
	}
	return nil
}
