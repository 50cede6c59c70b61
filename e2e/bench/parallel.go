// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os/exec"
	"sync"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

const atOnce = 16

// batch is one kind of call, many at the same moment.
type batch struct {
	name    string
	target  string
	prepare func(netns string) *exec.Cmd
	totals  []time.Duration // until the last call of a round ended
	each    samples
}

// parallel calls the plugin for many pods at once, as after a node's boot.
func (b *bench) parallel(rounds int) error {
	if err := b.answerPods(); err != nil {
		return err
	}
	batches := []*batch{
		{name: "floor", prepare: b.floor},
		{name: "ADD, meshed", target: "0.85x floor", prepare: func(netns string) *exec.Cmd { return b.call("ADD", "web", netns) }},
	}
	progress("%d at once", atOnce)
	for range rounds {
		for _, batch := range batches {
			if err := batch.round(); err != nil {
				return err
			}
		}
	}
	return printParallel(batches)
}

func (b *batch) round() (err error) {
	commands := make([]*exec.Cmd, atOnce)
	for i := range commands {
		var host *lab.Host
		if host, err = sandbox(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, host.Close()) }()
		commands[i] = b.prepare(host.Path())
	}
	var (
		wait   sync.WaitGroup
		each   = make(samples, atOnce)
		faults = make([]error, atOnce)
	)
	start := time.Now()
	for i, command := range commands {
		wait.Go(func() { each[i], faults[i] = measure(command) })
	}
	wait.Wait()
	b.totals = append(b.totals, time.Since(start))
	b.each = append(b.each, each...)
	return errors.Join(faults...)
}
