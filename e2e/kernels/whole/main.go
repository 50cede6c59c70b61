// SPDX-License-Identifier: Apache-2.0

// Command whole runs all tests that send packets, or read rules, on each kernel. A kernel
// on which the same programs passed before is left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/e2e/debian"
	"github.com/capture-cni/capture-cni/e2e/kernels"
)

func main() {
	kept := flag.String("kept", "bin/kernels", "directory in which kernels and results are kept")
	only := flag.String("only", "", "release of the only kernel to boot; empty for all")
	again := flag.Bool("again", false, "run also what passed before")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *kept, *only, *again); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, kept, only string, again bool) error {
	directory, err := os.MkdirTemp("", "kernels-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	suite, err := kernels.Build(ctx, directory, kernels.WholePackages()...)
	if err != nil {
		return err
	}
	var errs []error
	for _, kernel := range kernels.All {
		if only != "" && kernel.Release != only {
			continue
		}
		report, err := test(ctx, kernel, suite, kept, again)
		if err != nil {
			report = "FAILED"
			errs = append(errs, fmt.Errorf("%s: %w", kernel, err))
		}
		fmt.Printf("%-10s %s\n", kernel, report)
	}
	return errors.Join(errs...)
}

// test boots a kernel for the whole, unless that passed before.
func test(ctx context.Context, kernel kernels.Kernel, suite kernels.Suite, kept string, again bool) (report string, err error) {
	image, err := kernels.Fetch(ctx, kernel, kept)
	if errors.Is(err, debian.ErrGone) {
		return "NOT TESTED: " + err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	passes := kernels.Passes{Directory: kept}
	guest := kernels.Guest{Image: image, Suite: suite, Job: kernels.Whole()}
	digest, err := guest.Digest()
	if err != nil {
		return "", err
	}
	if when, passed := passes.Last(kernel, digest); passed && !again {
		return fmt.Sprintf("%s: passed on %s, with the same programs", image.Package, when.Format(time.DateTime)), nil
	}
	directory, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	began := time.Now()
	outcomes, err := guest.Boot(ctx, directory)
	if err != nil {
		return "", err
	}
	tests := 0
	for _, outcome := range outcomes {
		passed, failure := kernels.Passed(outcome)
		tests, err = tests+passed, errors.Join(err, failure)
	}
	if err != nil {
		return "", err
	}
	if err := passes.Record(kernel, digest); err != nil {
		return "", err
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %d tests passed in %s", image.Package, tests, time.Since(began).Round(time.Second))), nil
}
