// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/node"
)

func uninstallCommand(o *options) *cobra.Command {
	var purge, force bool
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the plugin's entry and credentials from the node",
		Long: `Remove the plugin's entry and credentials from the node and, with --purge, its
programs. Needs no API server and can be repeated. Without --purge the programs stay,
because the runtime executes the plugin to delete pods that were started with it.
While an agent runs on the node, uninstall fails without --force, because the agent
may install everything again.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := node.New(o.Settings, nil, nil, o.log).Uninstall(purge, force); err != nil {
				return err
			}
			_, err := fmt.Fprintln(command.OutOrStdout(), "the node is clean")
			return err
		},
	}
	command.Flags().BoolVar(&purge, "purge", false, "also delete the plugin's programs; only safe once no pod is left that started with them")
	command.Flags().BoolVar(&force, "force", false, "clean the node also while an agent runs there; the agent may install everything again")
	return command
}
