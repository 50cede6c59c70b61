// SPDX-License-Identifier: Apache-2.0

// Command whole runs all tests that send packets, or read rules, on each kernel: one guest
// for each package. What passed before with the same programs is left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/e2e/debian"
	"github.com/capture-cni/capture-cni/e2e/kernels"
)

func main() {
	var w whole
	flag.StringVar(&w.kept, "kept", "../../bin/kernels", "directory in which kernels and results are kept")
	only := flag.String("only", "", "regular expression: run only what it matches, as in \"6.12 e2e/guard\"; empty for all")
	flag.BoolVar(&w.again, "again", false, "run also what passed before")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if w.only, err = regexp.Compile(*only); err == nil {
		err = w.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

type whole struct {
	kept  string
	only  *regexp.Regexp
	again bool
}

// run goes on after a package that fails, until ctx ends.
func (w whole) run(ctx context.Context) error {
	var errs []error
	for _, architecture := range []*kernels.Architecture{kernels.AMD64, kernels.ARM64} {
		for _, selection := range kernels.Whole(architecture) {
			if ctx.Err() != nil {
				break
			}
			errs = append(errs, w.runPackage(ctx, selection, kernels.Of(architecture)))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// runPackage runs a package's tests on each kernel, and prints a line for each.
func (w whole) runPackage(ctx context.Context, selection kernels.Selection, chosen []kernels.Kernel) (err error) {
	name := selection.Package
	chosen = slices.DeleteFunc(chosen, func(k kernels.Kernel) bool { return !w.only.MatchString(k.Release + " " + name) })
	if len(chosen) == 0 {
		return nil
	}
	directory, err := os.MkdirTemp("", "kernels-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	suite, err := kernels.Build(ctx, directory, w.kept, chosen[0], name)
	if errors.Is(err, debian.ErrGone) {
		fmt.Printf("%-16s  %-17s  NOT TESTED: %v\n", chosen[0], name, err)
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, kernel := range chosen {
		report, err := w.test(ctx, kernel, selection, suite)
		if err != nil {
			report = "FAILED: " + err.Error()
			errs = append(errs, fmt.Errorf("%s on %s failed", name, kernel))
		}
		fmt.Printf("%-16s  %-17s  %s\n", kernel, name, report)
	}
	return errors.Join(errs...)
}

// test boots a kernel for a package's tests, unless they passed before.
func (w whole) test(ctx context.Context, kernel kernels.Kernel, selection kernels.Selection, suite kernels.Suite) (report string, err error) {
	guest := kernels.Guest{Suite: suite, Job: kernels.Job{Runs: []kernels.Run{selection.Run()}}}
	guest.Image, err = kernels.Fetch(ctx, kernel, w.kept)
	if errors.Is(err, debian.ErrGone) {
		return "NOT TESTED: " + err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	passes := kernels.Passes{Directory: w.kept}
	digest, err := guest.Digest()
	if err != nil {
		return "", err
	}
	if when, passed := passes.Last(kernel, selection.Package, digest); passed && !w.again {
		return fmt.Sprintf("%s: passed on %s, with the same programs", guest.Image.Package, when.Format(time.DateTime)), nil
	}
	directory, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	began := time.Now()
	outcomes, err := guest.Boot(ctx, directory)
	if err != nil {
		return "", err
	}
	count, err := selection.Passed(outcomes[0])
	if err != nil {
		return "", err
	}
	report = fmt.Sprintf("%s: %d tests passed in %s", guest.Image.Package, count, time.Since(began).Round(time.Second))
	return report, passes.Record(kernel, selection.Package, digest)
}
