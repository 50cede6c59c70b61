// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// verb is one row of the first table.
type verb struct {
	name, target string
	prepare      func(netns string) *exec.Cmd // measured
	before       func(netns string) *exec.Cmd // not measured, or nil
	samples      samples                      // one of each turn

	requests int
	traced   traced
	memory   float64 // MiB
}

// Rows of the first table that the others are compared with.
const (
	emptyRow = iota
	floorRow
	bareFloorRow
	aloneRow
)

func (b *bench) rows() []*verb {
	rows := []*verb{
		emptyRow: {
			name:    "empty Go program",
			prepare: func(string) *exec.Cmd { return exec.CommandContext(b.ctx, b.program("empty")) },
		},
		floorRow:     {name: "floor", prepare: b.floor},
		bareFloorRow: {name: "floor that reads no pod", prepare: b.bareFloor},
		aloneRow: {
			name: "nftables, ADD without an agent", target: "2x floor, 2 programs, 1 request",
			prepare: func(netns string) *exec.Cmd { return b.callFrom(b.alone(), "ADD", "web", netns) },
		},
		b.row("ADD, unmeshed, annotations given", "2x empty, 0 requests", "ADD", "batch", annotated),
		b.row("ADD, unmeshed, looked up", "0 requests", "ADD", "batch"),
		b.row("DEL, unmeshed", "0 requests", "DEL", "batch"),
	}
	for _, backend := range backends {
		add, del := "4x floor, 7 programs, 0 requests", ""
		if backend == config.NFTables {
			add, del = "0.75x floor, 1.5x bare, 10 MiB, 1 program, 0 requests", "0 requests"
		}
		name := func(what string) string { return fmt.Sprintf("%s, %s", backend, what) }
		rows = append(rows,
			b.row(name("ADD"), add, "ADD", "web", by(backend)),
			b.row(name("ADD, IPv4 and IPv6"), add, "ADD", "web", by(backend), dualStack),
			b.row(name("ADD, also TPROXY and DNS"), "", "ADD", "everything", by(backend), dualStack),
			b.row(name("ADD, with a fence"), "", "ADD", "fenced", by(backend)),
			b.row(name("CHECK"), "", "CHECK", "web", by(backend)),
			b.row(name("DEL"), del, "DEL", "web", by(backend)),
		)
	}
	return rows
}

// row is a call of the plugin; verbs other than ADD follow an ADD.
func (b *bench) row(name, target, command, pod string, keys ...string) *verb {
	row := &verb{
		name: name, target: target,
		prepare: func(netns string) *exec.Cmd { return b.call(command, pod, netns, keys...) },
	}
	if command != "ADD" {
		row.before = func(netns string) *exec.Cmd { return b.call("ADD", pod, netns, keys...) }
	}
	return row
}

// verbs measures the plugin's calls.
func (b *bench) verbs(runs int) error {
	if err := b.answerPods(); err != nil {
		return err
	}
	rows := b.rows()
	if err := b.measureRows(rows, runs); err != nil {
		return err
	}
	return b.printVerbs(rows)
}

// measureRows measures each kind of call once a turn, so that the machine's load is the
// same for all, and in random order, so that none always follows the same one.
func (b *bench) measureRows(rows []*verb, runs int) error {
	const warmUp = 3
	for turn := range warmUp + runs {
		if turn%50 == 0 {
			progress("turn %d of %d", turn, warmUp+runs)
		}
		for _, i := range rand.Perm(len(rows)) {
			if err := b.sample(rows[i], turn >= warmUp); err != nil {
				return err
			}
		}
	}
	for _, row := range rows {
		if err := b.inspect(row); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) sample(row *verb, counts bool) error {
	return b.withSandbox(row, func(netns string) error {
		requests := b.api.Requests()
		s, err := measure(row.prepare(netns))
		if err == nil && counts {
			row.samples = append(row.samples, s)
			row.requests = max(row.requests, b.api.Requests()-requests)
		}
		return err
	})
}

// inspect measures calls of the kernel and memory, which would slow a measured call down.
func (b *bench) inspect(row *verb) error {
	return errors.Join(
		b.withSandbox(row, func(netns string) (err error) {
			row.traced, err = b.trace(row.prepare(netns))
			return err
		}),
		b.withSandbox(row, func(netns string) (err error) {
			row.memory, err = b.peak(row.prepare(netns))
			return err
		}))
}

// withSandbox creates a namespace for f, after the call that has to come before.
func (b *bench) withSandbox(row *verb, f func(netns string) error) (err error) {
	var host *lab.Host
	if host, err = sandbox(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if row.before != nil {
		if _, err := measure(row.before(host.Path())); err != nil {
			return fmt.Errorf("preparing %s: %w", row.name, err)
		}
	}
	return f(host.Path())
}
