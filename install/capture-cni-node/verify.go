// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/node"
)

func verifyCommand(o *options) *cobra.Command {
	return queryCommand("verify", "Report whether the node is in the desired state",
		func(ctx context.Context) (any, bool) {
			report := node.New(o.Settings, nil, o.runtime, o.log).Verify(ctx)
			return report, report.Good()
		})
}

func preflightCommand(o *options) *cobra.Command {
	return queryCommand("preflight", "Report what would prevent an installation on the node",
		func(ctx context.Context) (any, bool) {
			problems := node.Check(ctx, o.Settings, o.runtime)
			return problems, !problems.Serious()
		})
}

// queryCommand returns a command that prints a report on the node, as text or as
// JSON, and fails if the report is not good. It changes nothing.
func queryCommand(use, short string, query func(context.Context) (report any, good bool)) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			report, good := query(command.Context())
			switch out := command.OutOrStdout(); format {
			case "text":
				_, err = fmt.Fprintln(out, report)
			case "json":
				err = writeJSON(out, report)
			default:
				err = fmt.Errorf("--output is %q: expected text or json", format)
			}
			if err == nil && !good {
				err = errCheckFailed
			}
			return err
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "text", "format of the report: text or json")
	return command
}
