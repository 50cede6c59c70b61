// SPDX-License-Identifier: Apache-2.0

// Command mutants breaks the product in named ways, one at a time, and runs for each
// the test that must notice. It fails for a mutant that survives. It changes no file of
// the project.
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
	"syscall"
)

func main() {
	only := flag.String("only", "", "run the mutants alone whose name matches this regular expression")
	list := flag.Bool("list", false, "print the mutants and run none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		fmt.Fprintln(os.Stderr, "mutants: interrupted; the tests that run now end first, and clean up")
		stop() // another interrupt ends it at once
	})()
	if err := run(ctx, *only, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list bool) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if list {
		for _, m := range chosen {
			fmt.Printf("%s (%s): %s\n", m.name, m.file, m.by)
		}
		return nil
	}
	if os.Geteuid() != 0 && slices.ContainsFunc(chosen, func(m mutant) bool { return m.by.cost == root }) {
		return errors.New("some tests need root: run it with sudo, or with -only")
	}
	return runAll(ctx, chosen)
}

func choose(only string) ([]mutant, error) {
	matches, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("reading -only: %w", err)
	}
	chosen := slices.DeleteFunc(table(), func(m mutant) bool {
		return !matches.MatchString(m.name)
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutant has a name that matches %q: -list prints all of them", only)
	}
	return chosen, nil
}
