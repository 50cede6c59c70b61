// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

const atOnce = 16

// parallel starts many pods at the same moment, as a node does after a boot.
func (b *bench) parallel() (err error) {
	progress("%d at once", atOnce)
	hosts := make([]*lab.Host, atOnce)
	for i := range hosts {
		if hosts[i], err = sandbox(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, hosts[i].Close()) }()
	}
	var (
		wait   sync.WaitGroup
		all    = make(samples, atOnce)
		faults = make([]error, atOnce)
	)
	start := time.Now()
	for i, host := range hosts {
		command := b.call("ADD", "web", host.Path(), false)
		wait.Go(func() { all[i], faults[i] = measure(command) })
	}
	wait.Wait()
	total := time.Since(start)
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Printf("%d ADDs at once: all after %s ms; each p50 %s ms, p99 %s ms, CPU p50 %s ms\n", atOnce, ms(total),
		ms(percentile(all.walls(), 50)), ms(percentile(all.walls(), 99)), ms(percentile(all.cpus(), 50)))
	return nil
}
