// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

const (
	// runsTimeout bounds the request whether a pod still runs: ADD and DEL of the pod
	// wait meanwhile.
	runsTimeout = 2 * time.Second

	// runsPause follows such a request without an answer. In it no pod is repaired, so
	// that a runtime that hangs does not delay the examinations of a whole node.
	runsPause = 5 * time.Second
)

// confirmer asks the container runtime whether pods still run.
type confirmer struct {
	runtime Runtime
	lister  *lister
	round   time.Duration
	breaker breaker
}

// fault returns why the container runtime can't say whether a pod still runs, or nil.
// Meanwhile pods are neither repaired nor evicted.
func (c *confirmer) fault() error { return cmp.Or(c.lister.fault, c.breaker.refusal()) }

// runs asks the runtime whether a pod still runs. CRI-O calls DEL once all containers of
// a pod have exited, and reports its sandbox as ready until that returns. A pod without a
// baseline was never seen captured: it runs until its sandbox ends.
func (c *confirmer) runs(ctx context.Context, w *watched) (bool, error) {
	if fault := c.fault(); fault != nil {
		return false, fault
	}
	ctx, cancel := context.WithTimeout(ctx, runsTimeout)
	defer cancel()
	began := time.Now()
	runs, err := c.runtime.Runs(ctx, w.sandbox)
	if err == nil && runs && w.baseline.isKnown() {
		var exited bool
		exited, err = c.runtime.HaveExited(ctx, w.sandbox)
		runs = err == nil && !exited
	}
	if err != nil && time.Since(began) > runsTimeout/2 {
		c.breaker.trip(min(runsPause, c.round), fmt.Errorf("the container runtime does not answer: %w", err))
	}
	return runs, err
}
