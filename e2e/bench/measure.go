// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sample is one run of a program, with all that it executed and waited for.
type sample struct {
	wall, user, system time.Duration
	faults, switches   int // of pages, and to other tasks
	process            int // its ID
}

func (s sample) cpu() time.Duration { return s.user + s.system }

func (s sample) plus(t sample) sample {
	return sample{s.wall + t.wall, s.user + t.user, s.system + t.system, s.faults + t.faults, s.switches + t.switches, 0}
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
	return sample{wall, state.UserTime(), state.SystemTime(), int(usage.Minflt + usage.Majflt), int(usage.Nvcsw + usage.Nivcsw), state.Pid()}, nil
}

// traced is what a command asked the kernel for.
type traced struct{ calls, programs, threads int }

// trace counts it, and returns nothing without strace.
func (b *bench) trace(command *exec.Cmd) (traced, error) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		return traced{}, nil
	}
	calls, err := b.launch(command, strace, "-f", "-qq", "-e", "signal=none", "-o", "/dev/stdout").Output()
	if err != nil {
		return traced{}, fmt.Errorf("counting the calls of %s: %w", command.Path, err)
	}
	count := func(text string) int { return bytes.Count(calls, []byte(text)) }
	return traced{count("\n") - count(" resumed>"), count("execve("), count("CLONE_THREAD")}, nil
}

// peak measures a command's peak memory in MiB, by a launcher of its own.
func (b *bench) peak(command *exec.Cmd) (float64, error) {
	out, err := b.launch(command, b.program("peak")).Output()
	if err != nil {
		return 0, fmt.Errorf("measuring the memory of %s: %w", command.Path, err)
	}
	kib, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, fmt.Errorf("measuring the memory of %s: %w", command.Path, err)
	}
	return float64(kib) / 1024, nil
}

// launch prepares a command as the child of another program.
func (b *bench) launch(command *exec.Cmd, launcher string, args ...string) *exec.Cmd {
	args = append(append(args, command.Path), command.Args[1:]...)
	launched := exec.CommandContext(b.ctx, launcher, args...)
	launched.Env, launched.Stdin = command.Env, command.Stdin
	return launched
}

type samples []sample

func (s samples) walls() []time.Duration {
	return each(s, func(s sample) time.Duration { return s.wall })
}

func (s samples) cpus() []time.Duration {
	return each(s, sample.cpu)
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

// ratio returns the ratio of the medians.
func ratio(a, b []time.Duration) float64 {
	return float64(percentile(a, 50)) / float64(percentile(b, 50))
}

// fifths returns the least and the greatest ratio of the medians of one fifth of the turns.
func fifths(a, b []time.Duration) string {
	const runs = 5
	var ratios []float64
	for i := range runs {
		from, to := i*len(a)/runs, (i+1)*len(a)/runs
		ratios = append(ratios, ratio(a[from:to], b[from:to]))
	}
	return fmt.Sprintf("%.2f to %.2f", slices.Min(ratios), slices.Max(ratios))
}
