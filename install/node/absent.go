// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
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

func (n *Node) mayClean(ctx context.Context, force bool) error {
	if force || n.clean() {
		return nil
	}
	if n.runtime == nil {
		return errNobodyToAsk
	}
	pods, err := n.runtime.MeshedPods(ctx)
	if err == nil && len(pods) > 0 {
		err = errPodsRun(pods)
	}
	return err
}

// clean tells a node from which our entry is gone.
func (n *Node) clean() bool {
	net, err := n.open(n.settings.NetDir)
	if err != nil {
		return false
	}
	defer net.Close()
	for _, name := range []string{ownedName, dropInName} {
		if _, err := net.Read(name); err == nil {
			return false
		}
	}
	p, err := findPrimary(net)
	return err == nil && p.list.Ours() == 0 && (dropIn{}).fault(net, nil) != nil
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
