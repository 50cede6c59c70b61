// SPDX-License-Identifier: Apache-2.0

// Command removals takes one piece of code out of a package at a time, and expects the
// package's own tests to fail: a statement, the body of an if, a case, an operand of && or
// ||, an element of a list or map, a field of a literal. It compiles a package once, with
// all removals in it, and changes no file of the project.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	efficacy := flag.Float64("efficacy", 0, "percentage of a package's removals, in code that its tests run, that they must notice")
	coverage := flag.Float64("coverage", 0, "percentage of a package's removals that must be in code that its tests run")
	lived := flag.Bool("lived", false, "print each removal that no test notices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *efficacy, *coverage, *lived, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "removals:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, efficacy, coverage float64, lived bool, patterns []string) error {
	sources, err := load(ctx, patterns)
	if err != nil {
		return err
	}
	var low []string
	for _, s := range sources {
		began := time.Now()
		o, err := try(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		fmt.Printf("%-60s %4d noticed, %3d not, %3d not run: efficacy %5.1f %%, coverage %5.1f %%  (%s)\n",
			s.path, o.killed, len(o.lived), len(o.unreached), o.efficacy(), o.coverage(), time.Since(began).Round(time.Second))
		if lived {
			for _, r := range o.lived {
				fmt.Println("  not noticed:", r)
			}
			for _, r := range o.unreached {
				fmt.Println("  not run:", r)
			}
		}
		if o.efficacy() < efficacy || o.coverage() < coverage {
			low = append(low, s.path)
		}
	}
	if len(low) > 0 {
		return fmt.Errorf("efficacy below %g %% or coverage below %g %%: %s", efficacy, coverage, strings.Join(low, ", "))
	}
	return nil
}
