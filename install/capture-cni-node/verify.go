// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/node"
)

func verifyCommand(o *options) *cobra.Command {
	return o.question("verify", "Is the node as run would have it?",
		func(ctx context.Context, settings node.Settings, runtime *cri.Client) (any, bool) {
			report := node.New(settings, nil, runtime, newLog()).Verify(ctx)
			return report, report.Good()
		})
}

func preflightCommand(o *options) *cobra.Command {
	return o.question("preflight", "What would go wrong, before anything is written",
		func(ctx context.Context, settings node.Settings, runtime *cri.Client) (any, bool) {
			problems := node.Preflight(ctx, settings, runtime)
			return problems, !problems.Serious()
		})
}
