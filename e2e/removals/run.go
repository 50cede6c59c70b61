// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed support.go.txt
var support string

// outcome is what the tests of one package noticed.
type outcome struct {
	killed           int
	lived, unreached []removal
}

// efficacy is the share of the removals in code that the tests run that they notice, and
// coverage the share of all that they run, in percent.
func (o outcome) efficacy() float64 { return percent(o.killed, o.killed+len(o.lived)) }

func (o outcome) coverage() float64 {
	return percent(o.killed+len(o.lived), o.killed+len(o.lived)+len(o.unreached))
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// trial is a package's tests, compiled with all of its removals.
type trial struct {
	dir, program string
	timeout      time.Duration
}

// try runs the tests of a package without each of its removals.
func try(ctx context.Context, s *source) (o outcome, err error) {
	scratch, err := os.MkdirTemp("", "removals-")
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	in := instrument(s)
	t := trial{dir: s.dir, program: filepath.Join(scratch, "tests"), timeout: time.Minute}
	if err := build(ctx, s, in, scratch, t.program); err != nil {
		return o, err
	}
	reached, err := t.reached(ctx, filepath.Join(scratch, "reached"))
	if err != nil {
		return o, err
	}
	var mu sync.Mutex
	var workers sync.WaitGroup
	numbers := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := range numbers {
				passed := t.run(ctx, "REMOVAL="+strconv.Itoa(n)) == nil
				mu.Lock()
				if passed {
					o.lived = append(o.lived, in.removals[n-1])
				} else {
					o.killed++
				}
				mu.Unlock()
			}
		})
	}
	for i, r := range in.removals {
		if reached[i+1] {
			numbers <- i + 1
		} else {
			o.unreached = append(o.unreached, r)
		}
	}
	close(numbers)
	workers.Wait()
	slices.SortFunc(o.lived, func(a, b removal) int { return strings.Compare(a.String(), b.String()) })
	return o, ctx.Err()
}

// build compiles a package's tests in place of whose files the compiler reads the
// instrumented ones.
func build(ctx context.Context, s *source, in instrumented, scratch, program string) error {
	replace := map[string]string{}
	in.files[filepath.Join(s.dir, "removals_support.go")] = fmt.Appendf(nil, support, s.types.Name())
	for name, text := range in.files {
		replace[name] = filepath.Join(scratch, filepath.Base(name))
		if err := os.WriteFile(replace[name], text, 0o600); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+file, "-o", program, ".")
	command.Dir = s.dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the removals: %w\n%s", err, out)
	}
	return nil
}

// run returns nil if the tests pass.
func (t trial) run(ctx context.Context, env ...string) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	command := exec.CommandContext(ctx, t.program, "-test.short", "-test.failfast", "-test.timeout="+t.timeout.String())
	command.Dir, command.Env = t.dir, append(os.Environ(), env...)
	command.WaitDelay = time.Second
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out[max(0, len(out)-2000):])
	}
	return nil
}

// reached returns the removals in code that the tests run, and sets the time that the tests
// may take.
func (t *trial) reached(ctx context.Context, file string) (map[int]bool, error) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := t.run(ctx, "REMOVALS_REACHED="+file); err != nil {
		return nil, fmt.Errorf("the tests fail with nothing removed: %w", err)
	}
	t.timeout = 5*time.Second + 3*time.Since(began)
	content, err := os.ReadFile(file)
	numbers := map[int]bool{}
	for line := range bytes.Lines(content) {
		n, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
		numbers[n] = true
	}
	return numbers, err
}
