// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Present keeps the plugin installed until ctx ends. Then it removes nothing, so that the runtime calls
// the plugin even while no agent runs.
func (k *Keeper) Present(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	lock := k.claim(ctx)
	if lock == nil {
		end()
		return
	}
	defer lock.Close()
	directories := append(k.otherDirectories(), k.node.Settings.At(k.node.Settings.NetDir))
	changes, serve := watch(directories, func() { k.metrics.polling.Set(1) }, k.log)
	var watching sync.WaitGroup
	watching.Go(func() { serve(ctx) })
	defer func() { end(); watching.Wait() }()
	for ctx.Err() == nil {
		next := k.Step(ctx)
		select {
		case <-ctx.Done():
		case directory := <-changes:
			k.Changed(directory)
		case <-time.After(time.Until(next)):
		}
	}
}

// otherDirectories returns the watched directories except NetDir, which contains the entry.
func (k *Keeper) otherDirectories() []string {
	wanted := k.node.Settings
	others := []string{filepath.Dir(wanted.Credentials.CAFile)}
	for _, directory := range wanted.BinDirs {
		others = append(others, wanted.At(directory))
	}
	return others
}

// Changed schedules the work after a change in a directory. For one of otherDirectories, that is a
// resync in the next step. For any other directory, such as NetDir, it is a repair, which the back-off
// can delay.
func (k *Keeper) Changed(directory string) {
	if slices.Contains(k.otherDirectories(), directory) {
		k.nextResync = time.Time{}
		return
	}
	now := time.Now()
	k.nextRepair = now.Add(k.contention.wait(now))
}

// Step does the work that is due, and returns the time of the next step.
func (k *Keeper) Step(ctx context.Context) (next time.Time) {
	if !time.Now().Before(k.nextResync) {
		k.resync(ctx, false)
	}
	if !k.nextRepair.IsZero() && !time.Now().Before(k.nextRepair) {
		k.nextRepair = time.Time{}
		k.repair(ctx)
	}
	if age := time.Since(k.tokenChecked); age >= tokenCheckInterval || age >= tokenCheckWithoutPods && k.pods() != nil {
		k.checkToken(ctx)
	}
	next = time.Now().Add(tokenCheckWithoutPods)
	for _, due := range []time.Time{k.nextResync, k.nextRepair} {
		if !due.IsZero() && due.Before(next) {
			next = due
		}
	}
	return next
}

// Absent removes capture-cni from the node, and keeps it removed until ctx ends. While CheckRemovable
// returns an error, Absent keeps the plugin installed instead, and other goroutines answer requests for
// pods. After the removal, Absent calls stop to end these goroutines.
func (k *Keeper) Absent(ctx context.Context, force bool, stop func()) {
	lock := k.claim(ctx)
	if lock == nil {
		return
	}
	defer lock.Close()
	for ctx.Err() == nil {
		again := k.StepAbsent(ctx, force, stop)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// StepAbsent cleans the node if CheckRemovable permits that, and otherwise keeps the plugin installed.
// It returns the time to wait before the next call.
func (k *Keeper) StepAbsent(ctx context.Context, force bool, stop func()) (again time.Duration) {
	err := k.node.CheckRemovable(ctx, force)
	report := Report{Mode: k.node.Mode}
	if err == nil {
		if err = k.node.Clean(false); err == nil {
			stop()                    // not before the entry is gone, because each ADD of a meshed pod may need an answer
			err = k.node.Clean(false) // the goroutines may have recreated a socket
		}
	} else {
		report = k.node.Install(ctx, false)
	}
	again = undecidedInterval
	if report.Add(PartEntry, err); err == nil {
		report.Findings, again = k.node.Left(), resyncInterval
	}
	k.setReport(report)
	k.absent.Store(true)
	return again
}
