// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/preflight"
	"github.com/capture-cni/capture-cni/install/settings"
)

func verifyCommand(o *options) *cobra.Command {
	return o.queryCommand("verify", "Report whether the node is in the desired state",
		func(ctx context.Context, settings settings.Node, runtime *cri.Client) (any, bool) {
			report := node.New(settings, nil, runtime, o.log).Verify(ctx)
			return report, report.Good()
		})
}

func preflightCommand(o *options) *cobra.Command {
	return o.queryCommand("preflight", "Report what would prevent an installation on the node",
		func(ctx context.Context, settings settings.Node, runtime *cri.Client) (any, bool) {
			problems := preflight.Check(ctx, settings, runtime)
			return problems, !problems.Serious()
		})
}

// queryCommand returns a command that prints a report on the node, as text or as
// JSON, and fails if the report is not good. It changes nothing.
func (o *options) queryCommand(use, short string, query func(context.Context, settings.Node, *cri.Client) (report any, good bool)) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := o.settings()
			if err != nil {
				return err
			}
			runtime, err := o.runtime()
			if err != nil {
				return err
			}
			report, good := query(command.Context(), settings, runtime)
			if err := printReport(command, format, report); err != nil {
				return err
			}
			if !good {
				return errCheckFailed
			}
			return nil
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "text", "format of the report: text or json")
	return command
}

func printReport(command *cobra.Command, format string, report any) error {
	switch format {
	case "text":
		_, err := fmt.Fprintln(command.OutOrStdout(), report)
		return err
	case "json":
		encoder := json.NewEncoder(command.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	return fmt.Errorf("--output is %q: expected text or json", format)
}
