// SPDX-License-Identifier: Apache-2.0

// Command mutate changes a package in one place at a time, and expects the package's own
// tests to fail. It leaves out a statement, the body of an if, a case, an operand of && or
// ||, an element of a list or map, or a field of a literal; and it makes the changes of
// operators that gremlins makes by default. It compiles a package once, with all mutants in
// it, and changes no file of the project.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// product are the packages of the product.
var product = []string{"./config/...", "./plugin/...", "./install/...", "./deploy/..."}

// limits are the percentages below which a package fails.
type limits struct{ efficacy, coverage float64 }

func main() {
	var least limits
	flag.Float64Var(&least.efficacy, "efficacy", 95, "percentage of a package's mutants, in code that its tests run, that they must notice")
	flag.Float64Var(&least.coverage, "coverage", 95, "percentage of a package's mutants that must be in code that its tests run")
	lived := flag.Bool("lived", false, "print each mutant that no test notices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The go command does not pass the signal on that ends it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "mutate: asking for a signal at the end of the go command:", err)
		os.Exit(1)
	}
	if err := run(ctx, least, *lived, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// packagesAtOnce is how many packages are measured at a time, because one can wait while the other
// computes.
const packagesAtOnce = 2

// run measures the packages that match the patterns, or all of the product that can be measured.
func run(ctx context.Context, least limits, lived bool, patterns []string) error {
	reasons, err := parseExceptions(exceptionList)
	leftOut, listErr := parseUnmeasured(unmeasuredList)
	if err := errors.Join(err, listErr); err != nil {
		return err
	}
	isAll := len(patterns) == 0
	if isAll {
		patterns = product
	}
	sources, err := load(ctx, patterns)
	if err != nil {
		return err
	}
	if isAll {
		sources = measured(sources, leftOut)
		defer fmt.Printf("%d packages are left out, for the reasons in e2e/mutate/unmeasured.txt\n", len(leftOut))
	}
	outcomes, failed := make([]outcome, len(sources)), make([]error, len(sources))
	parallel(packagesAtOnce, len(sources), func(i int) {
		outcomes[i], failed[i] = measure(ctx, sources[i], reasons)
		if failed[i] != nil {
			fmt.Fprintln(os.Stderr, sources[i].name()+": error")
			return
		}
		fmt.Fprintf(os.Stderr, "%s: %d noticed, %.0f s\n", sources[i].name(), len(outcomes[i].killed), outcomes[i].took.Seconds())
	})
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "noticed\tnot\tnot run\texcepted\ttimed out\tefficacy\tcoverage\tseconds\t  package")
	for i, o := range outcomes {
		if failed[i] != nil {
			failed[i] = fmt.Errorf("%s: %w", sources[i].name(), failed[i])
			continue
		}
		excepted, stale := reasons.apply(&o, sources[i])
		row := fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%.1f %%\t%.1f %%\t%.0f\t", len(o.killed), len(o.lived), len(o.unreached), excepted, o.timedOut,
			o.efficacy(), o.coverage(), o.took.Seconds())
		fmt.Fprintln(table, row+"  "+sources[i].name())
		if lived {
			print("not noticed", o.lived)
			print("not run", o.unreached)
		}
		failed[i] = o.check(least, sources[i], stale)
	}
	return errors.Join(append(failed, table.Flush())...)
}

// measure compiles a package with its mutants, and runs its tests against them.
func measure(ctx context.Context, s *source, reasons exceptions) (outcome, error) {
	t, err := prepare(ctx, s)
	if err != nil {
		return outcome{}, err
	}
	return t.run(ctx, reasons)
}

// check returns an error if tests notice too few of a package's mutants, or if exceptions are none.
func (o outcome) check(least limits, s *source, stale []string) (err error) {
	if len(stale) > 0 {
		err = fmt.Errorf("exceptions that are none, because a test notices them or they are gone:\n  %s", strings.Join(stale, "\n  "))
	}
	if o.efficacy() < least.efficacy || o.coverage() < least.coverage {
		err = errors.Join(err, fmt.Errorf("%s has an efficacy below %g %% or a coverage below %g %%", s.name(), least.efficacy, least.coverage))
	}
	return err
}

func print(verdict string, mutants []mutant) {
	for _, m := range mutants {
		fmt.Printf("  %s: %s\n", verdict, m)
	}
}
