// SPDX-License-Identifier: Apache-2.0

// Command matrix runs tests with other versions of Kubernetes, Istio and Helm than the
// project's other tests do. It prints a line for each combination, and fails if one did.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

func main() {
	only := flag.String("only", "", "run the cells alone whose name matches this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	matches, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("reading -only: %w", err)
	}
	project, err := lab.Project(ctx)
	if err != nil {
		return err
	}
	if err := os.Chdir(project); err != nil {
		return fmt.Errorf("entering the project: %w", err)
	}
	ran, failed := 0, 0
	for _, c := range cells {
		if !matches.MatchString(c.name) || ctx.Err() != nil {
			continue
		}
		ran++
		began, result := time.Now(), "passed"
		if err := c.run(ctx); err != nil {
			result = "failed: " + err.Error()
			failed++
		}
		fmt.Printf("%s: %s, in %s\n", c.name, result, time.Since(began).Round(time.Second))
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case ran == 0:
		return fmt.Errorf("no cell has a name that matches %q", only)
	case failed > 0:
		return fmt.Errorf("%d of %d cells failed", failed, ran)
	}
	return nil
}
