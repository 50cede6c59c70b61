// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sample is one run of a program, with all that it executed and waited for.
type sample struct {
	wall, cpu time.Duration
	rss       int64 // KiB, of the largest process
}

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
	usage := state.SysUsage().(*syscall.Rusage)
	return sample{wall, state.UserTime() + state.SystemTime(), usage.Maxrss}, nil
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

type samples []sample

func (s samples) walls() []time.Duration {
	return each(s, func(s sample) time.Duration { return s.wall })
}

func (s samples) cpus() []time.Duration {
	return each(s, func(s sample) time.Duration { return s.cpu })
}

func (s samples) rss() int64 {
	return slices.Max(each(s, func(s sample) int64 { return s.rss }))
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
