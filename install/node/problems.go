// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
)

// preflightTimeout limits the duration of preflight's checks at the agent's start.
const preflightTimeout = 30 * time.Second

// Preflight logs and counts the findings of inAgent. It runs in parallel with the agent's work, which
// does not depend on the checks.
func (k *Keeper) Preflight(ctx context.Context) {
	k.logProblems(ctx, func(ctx context.Context) report.Findings {
		return inAgent(ctx, k.node.Settings, k.node.Runtime)
	})
}

func (k *Keeper) logProblems(ctx context.Context, check func(context.Context) report.Findings) {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	found, failed := make(chan report.Findings, 1), make(chan error, 1)
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
		k.log.Warn("the checks of preflight failed: run capture-cni-node preflight on the node", "error", err)
	case <-ctx.Done():
		k.log.Warn("the checks of preflight did not finish: run capture-cni-node preflight on the node", "error", ctx.Err())
	}
}

func (k *Keeper) observeProblems(problems report.Findings) {
	serious := 0
	for _, problem := range problems {
		if problem.Severity == report.Problem {
			serious++
			k.log.Warn("preflight found a problem", "problem", problem.Reason, "do", problem.Next)
		} else {
			k.log.Info("preflight has a note", "problem", problem.Reason, "do", problem.Next)
		}
	}
	k.metrics.preflight.WithLabelValues("serious").Set(float64(serious))
	k.metrics.preflight.WithLabelValues("note").Set(float64(len(problems) - serious))
}
