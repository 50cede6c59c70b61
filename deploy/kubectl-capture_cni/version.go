// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// versions contains the versions of the kubectl plugin and of the agents.
type versions struct {
	Plugin string         `json:"plugin"`
	Agents map[string]int `json:"agents"` // number of nodes by the version of their agents
}

func versionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this plugin and of the agents",
		Args:  cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) error {
			f, err := fleet.Read(command.Context(), client, o.agentNamespace)
			if err != nil {
				return err
			}
			v := versions{config.OwnVersion(), countNodes(f, versionOf)}
			return write(o, command.OutOrStdout(), v, nil, func(out io.Writer, v versions) {
				fmt.Fprintf(out, "plugin  %s\nagents  %s\n", v.Plugin, printable(counts(v.Agents)))
			})
		}),
	}
}
