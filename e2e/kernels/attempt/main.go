// SPDX-License-Identifier: Apache-2.0

// Command attempt runs in a guest. It starts pods by the plugin on a kernel that lacks
// something, and prints what came of it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/kernels"
)

func main() {
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "attempt:", err)
		os.Exit(1)
	}
}

func work() error {
	// That of the node, where the plugin runs.
	if err := os.Setenv("PATH", "/usr/sbin"); err != nil {
		return err
	}
	switch os.Args[1] {
	case "confined":
		return confined(os.Args[2])
	case "captors":
		return captors(os.Args[2])
	case "locks":
		return locks(os.Args[2])
	}
	var trial kernels.Trial
	if err := json.Unmarshal([]byte(os.Args[1]), &trial); err != nil {
		return err
	}
	n, err := newNode(trial)
	if err != nil {
		return err
	}
	for {
		if err := block(trial.Blocked); err != nil {
			return err
		}
		attempt, err := n.start()
		if err != nil {
			return err
		}
		attempt.Blocked = slices.Clone(trial.Blocked)
		line, err := json.Marshal(attempt)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", line)
		// What the error asks for is what an operator would load.
		missing := slices.DeleteFunc(slices.Clone(trial.Blocked), func(module string) bool { return !names(attempt.Add, module) })
		if len(missing) == 0 {
			return nil
		}
		trial.Blocked = slices.DeleteFunc(trial.Blocked, func(module string) bool { return slices.Contains(missing, module) })
	}
}

// names reports whether a text has the name of a module.
func names(text, module string) bool {
	return regexp.MustCompile(`\b` + module + `\b`).MatchString(text)
}

// block makes modprobe fail for modules, and for no others.
func block(modules []string) error {
	var lines strings.Builder
	for _, module := range modules {
		fmt.Fprintf(&lines, "install %s /usr/sbin/false\n", module)
	}
	err := errors.Join(os.MkdirAll("/etc/modprobe.d", 0o755), os.WriteFile("/etc/modprobe.d/blocked.conf", []byte(lines.String()), 0o644))
	unix.Sync()
	return err
}
