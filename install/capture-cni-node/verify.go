// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/node"
)

func verifyCommand(o *options) *cobra.Command {
	return o.queryCommand("verify", "Report whether the node is in the desired state",
		func(ctx context.Context, settings node.Settings, runtime *cri.Client) (any, bool) {
			report := node.New(settings, nil, runtime, newLog()).Verify(ctx)
			return report, report.Good()
		})
}

func preflightCommand(o *options) *cobra.Command {
	return o.queryCommand("preflight", "Report what would prevent an installation on the node",
		func(ctx context.Context, settings node.Settings, runtime *cri.Client) (any, bool) {
			problems := node.Preflight(ctx, settings, runtime)
			return problems, !problems.Serious()
		})
}
