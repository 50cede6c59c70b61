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
)

func main() {
	runs := flag.Int("n", 100, "runs of each case")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *runs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, runs int) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run it with sudo")
	}
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, part := range []func() error{
		func() error { return b.verbs(runs) },
		b.growth,
		b.parallel,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}
