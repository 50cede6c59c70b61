// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is one run of a program, with all that it executed and waited for.
type sample struct{ wall, cpu time.Duration }

// measure runs a prepared command.
func measure(command *exec.Cmd) (sample, error) {
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	start := time.Now()
	err := command.Run()
	wall := time.Since(start)
	if err != nil {
		return sample{}, fmt.Errorf("running %s: %w: %s", command.Path, err, out.String())
	}
	state := command.ProcessState
	return sample{wall, state.UserTime() + state.SystemTime()}, nil
}

// executed counts the programs that a command executes, itself included, or
// gives 0 where strace is not there.
func executed(command *exec.Cmd) int {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return 0
	}
	traced := exec.Command(strace, append([]string{"-f", "-qq", "-e", "trace=execve", "-e", "signal=none", command.Path}, command.Args[1:]...)...)
	traced.Env, traced.Stdin = command.Env, command.Stdin
	var trace bytes.Buffer
	traced.Stderr = &trace
	if traced.Run() != nil {
		return 0
	}
	return strings.Count(trace.String(), "execve(")
}

// peak measures a command's peak memory in MiB, by a launcher of its own.
func (b *bench) peak(command *exec.Cmd) (float64, error) {
	launched := exec.CommandContext(b.ctx, b.program("peak"), append([]string{command.Path}, command.Args[1:]...)...)
	launched.Env, launched.Stdin = command.Env, command.Stdin
	out, err := launched.Output()
	if err != nil {
		return 0, fmt.Errorf("measuring the memory of %s: %w", command.Path, err)
	}
	kib, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, fmt.Errorf("measuring the memory of %s: %w", command.Path, err)
	}
	return float64(kib) / 1024, nil
}

type samples []sample

func (s samples) walls() []time.Duration {
	return each(s, func(s sample) time.Duration { return s.wall })
}

func (s samples) cpus() []time.Duration {
	return each(s, func(s sample) time.Duration { return s.cpu })
}

func each[S, T any](list []S, f func(S) T) []T {
	result := make([]T, len(list))
	for i, element := range list {
		result[i] = f(element)
	}
	return result
}

// percentile of durations, p from 0 to 100.
func percentile(list []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
func us(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Microsecond)) }
