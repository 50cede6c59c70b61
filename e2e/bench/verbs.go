// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"text/tabwriter"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// verb is one row of the first table.
type verb struct {
	name    string
	prepare func(netns string) *exec.Cmd // measured
	before  func(netns string) *exec.Cmd // not measured, or nil
	samples samples

	requests, programs int
	memory             float64 // MiB
}

// verbs measures each kind of call, in turn, so that all meet the same machine.
func (b *bench) verbs(runs int) error {
	meshed := func(netns string) *exec.Cmd { return b.call("ADD", "web", netns, false) }
	rows := []*verb{
		{name: "empty Go program", prepare: func(string) *exec.Cmd { return exec.CommandContext(b.ctx, b.program("empty")) }},
		{name: "floor", prepare: b.floor},
		{name: "ADD, meshed", prepare: meshed},
		{name: "ADD, unmeshed, annotations given", prepare: func(netns string) *exec.Cmd { return b.call("ADD", "batch", netns, true) }},
		{name: "ADD, unmeshed, looked up", prepare: func(netns string) *exec.Cmd { return b.call("ADD", "batch", netns, false) }},
		{name: "CHECK, meshed", before: meshed, prepare: func(netns string) *exec.Cmd { return b.call("CHECK", "web", netns, false) }},
		{name: "DEL, meshed", before: meshed, prepare: func(netns string) *exec.Cmd { return b.call("DEL", "web", netns, false) }},
	}
	const warmUp = 3
	for i := range warmUp + runs {
		if i%20 == 0 {
			progress("run %d of %d", i, warmUp+runs)
		}
		for _, row := range rows {
			if err := b.sample(row, i >= warmUp); err != nil {
				return err
			}
		}
	}
	for _, row := range rows {
		err := errors.Join(
			b.withSandbox(row, func(netns string) error {
				row.programs = executed(row.prepare(netns))
				return nil
			}),
			b.withSandbox(row, func(netns string) (err error) {
				row.memory, err = b.peak(row.prepare(netns))
				return err
			}))
		if err != nil {
			return err
		}
	}
	b.printVerbs(rows)
	return nil
}

func (b *bench) sample(row *verb, counts bool) error {
	return b.withSandbox(row, func(netns string) error {
		requests := b.api.Requests()
		s, err := measure(row.prepare(netns))
		if err == nil && counts {
			row.samples = append(row.samples, s)
			row.requests = b.api.Requests() - requests
		}
		return err
	})
}

// withSandbox makes a fresh namespace for f, with what has to be done before.
func (b *bench) withSandbox(row *verb, f func(netns string) error) (err error) {
	var host *lab.Host
	if host, err = sandbox(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if row.before != nil {
		if _, err := measure(row.before(host.Path())); err != nil {
			return err
		}
	}
	return f(host.Path())
}

func (b *bench) printVerbs(rows []*verb) {
	empty, floor := percentile(rows[0].samples.walls(), 50), percentile(rows[1].samples.walls(), 50)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CALL\tp50 ms\tp90 ms\tp99 ms\tCPU ms\tRSS MiB\tPROGRAMS\tAPI REQUESTS\tx FLOOR\tx EMPTY")
	for _, row := range rows {
		walls := row.samples.walls()
		p50 := percentile(walls, 50)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%.1f\t%d\t%d\t%.2f\t%.2f\n", row.name,
			ms(p50), ms(percentile(walls, 90)), ms(percentile(walls, 99)), ms(percentile(row.samples.cpus(), 50)),
			row.memory, row.programs, row.requests, float64(p50)/float64(floor), float64(p50)/float64(empty))
	}
	_ = table.Flush() // what is behind it is stdout
	for _, name := range []string{"capture-cni", "floor", "empty"} {
		if info, err := os.Stat(b.program(name)); err == nil {
			fmt.Printf("binary %-12s %.1f MiB\n", name, float64(info.Size())/(1<<20))
		}
	}
	fmt.Print("to reach: meshed <= 1.5x floor, 1 program, 1 API request, RSS <= 32 MiB, binary <= 20 MiB; annotations given: <= 5x empty, 0 API requests\n\n")
}
