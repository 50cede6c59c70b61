// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// errPodsRun refuses to take the plugin's entry away from pods that count on it:
// one that was restarted in place would come back uncaptured.
type errPodsRun []string

func (pods errPodsRun) Error() string {
	return fmt.Sprintf("%d captured pods still run on the node (%s): drain it, or force it", len(pods), strings.Join(pods, ", "))
}

// errNobodyToAsk refuses to guess.
var errNobodyToAsk = errors.New("whether captured pods run on the node is not known, because there is no CRI socket to ask: give one, or force it")

// Absent keeps the node clean until ctx ends: an agent that is there, and ready,
// tells that its node is done.
func (k *Keeper) Absent(ctx context.Context, force bool) error {
	lock := k.claim(ctx)
	if lock == nil {
		return nil
	}
	defer lock.Close()
	for {
		report := Report{Mode: k.node.mode}
		err := k.node.mayClean(ctx, force)
		if err == nil {
			err = k.node.Clean(false)
		}
		report.add(PartEntry, err)
		k.keep(report)
		k.absent.Store(true)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(resync):
		}
	}
}

// mayClean gives the reason why the node may not be cleaned yet. Where nothing of
// ours is in the runtime's way, nothing is lost by it.
func (n *Node) mayClean(ctx context.Context, force bool) error {
	if force {
		return nil
	}
	found, err := n.hasEntry()
	if err != nil || !found {
		return err
	}
	if n.runtime == nil {
		return errNobodyToAsk
	}
	pods, err := n.meshedPods(ctx)
	if err == nil && len(pods) > 0 {
		err = errPodsRun(pods)
	}
	return err
}

// hasEntry tells whether an entry of ours is there, by whatever mode.
func (n *Node) hasEntry() (bool, error) {
	net, err := n.open(n.settings.NetDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer net.Close()
	for _, placement := range placements {
		if found, err := placement.found(net); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// Look is what readiness goes by: the truth about the disk and the runtime at
// this moment or, where the node is to be clean, what the last pass found.
func (k *Keeper) Look(ctx context.Context) Report {
	last := k.Report()
	if k.absent.Load() || !last.Is(PartOwner) {
		return last
	}
	report := k.node.verify(ctx, last.Mode)
	k.metrics.observe(report)
	return report
}
