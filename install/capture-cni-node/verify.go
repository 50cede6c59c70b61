// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/report"
)

func verifyCommand(o *options) *cobra.Command {
	return queryCommand("verify", "Report whether the node is in the desired state of run --state present",
		func(ctx context.Context) (string, any, bool) {
			report := node.New(o.Settings, nil, o.runtime, o.log).Verify(ctx)
			return report.String(), report, report.Good()
		})
}

func preflightCommand(o *options) *cobra.Command {
	return queryCommand("preflight", "Report what would prevent an installation on the node",
		func(ctx context.Context) (string, any, bool) {
			found := node.Check(ctx, o.Settings, o.runtime)
			return found.String(), node.Answers(found), len(found.Of(report.Problem)) == 0
		})
}

// queryCommand returns a command that prints a report about the node, as text or JSON, and fails if the
// report is not good.
func queryCommand(use, short string, query func(context.Context) (text string, document any, good bool)) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			text, document, good := query(command.Context())
			switch out := command.OutOrStdout(); format {
			case "text":
				_, err = fmt.Fprintln(out, text)
			case "json":
				err = writeJSON(out, document)
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
