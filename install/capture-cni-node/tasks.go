// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// task runs until its context ends, or until it fails.
type task func(context.Context) error

// untilEnd returns a task that calls work and can't fail.
func untilEnd(work func(context.Context)) task {
	return func(ctx context.Context) error { work(ctx); return nil }
}

// after returns tasks that begin once the channel begin is closed.
func after(begin <-chan struct{}, tasks []task) []task {
	waiting := make([]task, len(tasks))
	for i, t := range tasks {
		waiting[i] = func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-begin:
				return t(ctx)
			}
		}
	}
	return waiting
}

// runTogether runs all tasks at the same time. It ends them when the first one fails, waits for all of
// them, and returns the first error.
func runTogether(ctx context.Context, tasks ...task) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		group.Go(func() error { return t(ctx) })
	}
	return group.Wait()
}
