// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// adopt completes the flags of a command by those of the process that runs in
// the same container, and gives that one's command: who enters a container with
// kubectl exec need not repeat them. Elsewhere it gives "".
func adopt(flags *pflag.FlagSet) (command string, err error) {
	if !sameProgram("/proc/1/exe", "/proc/self/exe") {
		return "", nil
	}
	line, err := os.ReadFile("/proc/1/cmdline")
	if err != nil {
		return "", fmt.Errorf("reading the flags of the container's process: %w", err)
	}
	return adoptLine(flags, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"))
}

// adoptLine leaves flags alone that were given already.
func adoptLine(flags *pflag.FlagSet, line []string) (command string, err error) {
	theirs := pflag.NewFlagSet("", pflag.ContinueOnError)
	theirs.ParseErrorsAllowlist.UnknownFlags = true
	theirs.Usage = func() {}
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Changed && flag.Name != "help" {
			theirs.AddFlag(flag)
		}
	})
	if err := theirs.Parse(line[1:]); err != nil {
		return "", fmt.Errorf("reading the flags of the container's process: %w", err)
	}
	return theirs.Arg(0), nil
}

func sameProgram(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
