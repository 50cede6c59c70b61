// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/kernels"
)

const tracing = "/sys/kernel/tracing/"

// locks calls the plugin for a pod of each trial, and prints which locks it took.
func locks(arg string) error {
	var trials []kernels.Trial
	if err := json.Unmarshal([]byte(arg), &trials); err != nil {
		return err
	}
	if err := trace(); err != nil {
		return err
	}
	for _, trial := range trials {
		n, err := newNode(trial)
		if err != nil {
			return err
		}
		pod, peer, err := newPod()
		if err != nil {
			return err
		}
		if trial.LoDown {
			err := pod.Do(func() error { return exec.Command("ip", "link", "set", "lo", "down").Run() })
			if err != nil {
				return err
			}
		}
		for _, verb := range kernels.LockedVerbs {
			result := kernels.Locked{Trial: trial, Verb: verb}
			if result.Calls, err = counted(func() { result.Fault = n.call(verb, "web", pod) }); err != nil {
				return err
			}
			line, err := json.Marshal(result)
			if err != nil {
				return err
			}
			fmt.Printf("%s\n", line)
		}
		if err := errors.Join(pod.Close(), peer.Close()); err != nil {
			return err
		}
	}
	return nil
}

// trace has the kernel write a line for each call of LockFunctions.
func trace() error {
	if err := unix.Mount("tracefs", tracing, "tracefs", 0, ""); err != nil {
		return fmt.Errorf("mounting tracefs: %w", err)
	}
	known, err := os.ReadFile(tracing + "available_filter_functions")
	if err != nil {
		return err
	}
	var filter strings.Builder
	for line := range strings.Lines(string(known)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(kernels.LockFunctions, name) {
			fmt.Fprintln(&filter, name)
		}
	}
	return errors.Join(
		os.WriteFile(tracing+"set_ftrace_filter", []byte(filter.String()), 0o644),
		os.WriteFile(tracing+"current_tracer", []byte("function"), 0o644))
}

// traced is a line about the plugin or its lookup program.
var traced = regexp.MustCompile(`(?m)^\s*capture-cni\S*\s+\[.*: (\w+)\S* (<-\w+)`)

// counted counts the calls of LockFunctions by the plugin in f.
func counted(f func()) (map[string]int, error) {
	if err := os.WriteFile(tracing+"trace", nil, 0o644); err != nil {
		return nil, err
	}
	f()
	lines, err := os.ReadFile(tracing + "trace")
	calls := map[string]int{}
	for _, found := range traced.FindAllSubmatch(lines, -1) {
		calls[string(found[1])+" "+string(found[2])]++
	}
	return calls, err
}
