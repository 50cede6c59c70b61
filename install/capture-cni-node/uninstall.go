// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/node"
)

func uninstallCommand(o *options) *cobra.Command {
	var purge bool
	command := &cobra.Command{
		Use:   "uninstall",
		Short: "Take everything off the node, once",
		Long: `Take everything off the node, once: our entry, the credentials, and with --purge
the plugin itself. Needs no API server, and no harm is done by a second time.
Without --purge the plugin stays, so that pods that were started with it can end.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := o.settings()
			if err != nil {
				return err
			}
			n := node.New(settings, nil, nil, newLog())
			if err := n.Clean(purge); err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), "the node is clean")
			return err
		},
	}
	command.Flags().BoolVar(&purge, "purge", false, "delete the plugin, too: only once no pod is left that was started with it")
	return command
}
