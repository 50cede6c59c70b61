// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"time"

	"github.com/capture-cni/capture-cni/install/node"
)

// Absent keeps the node clean until ctx ends. The agent keeps running: that it is
// ready means that the node is clean.
func (k *Keeper) Absent(ctx context.Context, force bool) {
	lock := k.claim(ctx)
	if lock == nil {
		return
	}
	defer lock.Close()
	for {
		report := node.Report{Mode: k.node.Mode}
		err := k.node.CheckRemovable(ctx, force)
		if err == nil {
			err = k.node.Clean(false)
		}
		report.Add(node.PartEntry, err)
		k.setReport(report)
		k.absent.Store(true)
		select {
		case <-ctx.Done():
			return
		case <-time.After(resyncInterval):
		}
	}
}
