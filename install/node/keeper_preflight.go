// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
)

// preflightTimeout is how long the agent waits for the checks of preflight.
const preflightTimeout = 30 * time.Second

// Preflight logs and counts what preflight finds. It runs next to the agent's work: the
// agent installs whatever the checks find, and however long they take.
func (k *Keeper) Preflight(ctx context.Context) {
	k.logProblems(ctx, k.node.preflight)
}

func (k *Keeper) logProblems(ctx context.Context, check func(context.Context) Problems) {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	found, failed := make(chan Problems, 1), make(chan error, 1)
	go func() {
		defer func() {
			if fault := recover(); fault != nil {
				failed <- fmt.Errorf("%v", fault)
			}
		}()
		found <- check(ctx)
	}()
	select {
	case problems := <-found:
		k.observeProblems(problems)
	case err := <-failed:
		k.node.log.Warn("the checks of preflight failed: run capture-cni-node preflight on the node", "error", err)
	case <-ctx.Done():
		k.node.log.Warn("the checks of preflight took too long: run capture-cni-node preflight on the node", "error", ctx.Err())
	}
}

func (k *Keeper) observeProblems(problems Problems) {
	serious := 0
	for _, problem := range problems {
		if problem.Serious {
			serious++
			k.node.log.Warn("preflight found a problem", "problem", problem.What, "do", problem.Do)
		} else {
			k.node.log.Info("preflight has a note", "problem", problem.What, "do", problem.Do)
		}
	}
	k.metrics.preflight.WithLabelValues("serious").Set(float64(serious))
	k.metrics.preflight.WithLabelValues("note").Set(float64(len(problems) - serious))
}

// preflight returns what would fail on the node. It tests the kernel only where this
// process may: the agent's pod has neither the capabilities nor iptables.
func (n *Node) preflight(ctx context.Context) Problems {
	p := newPreflight(n.settings)
	p.files(ctx, n.runtime)
	if n.settings.Entry.Conf.Backend == config.NFTables && hasCapabilities(unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN) {
		p.kernel(ctx)
	}
	return p.found
}

// hasCapabilities reports whether this process has the capabilities, each below 32.
func hasCapabilities(wanted ...int) bool {
	var sets [2]unix.CapUserData
	if unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]) != nil {
		return false
	}
	for _, capability := range wanted {
		if sets[0].Effective&(1<<capability) == 0 {
			return false
		}
	}
	return true
}
