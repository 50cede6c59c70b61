// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/node"
)

// question is a command that looks at the node, changes nothing, and says how
// it is: to people, or as JSON; whether that is good is its exit status.
func (o *options) question(use, short string, ask func(context.Context, node.Settings, *cri.Client) (answer any, good bool)) *cobra.Command {
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
			answer, good := ask(command.Context(), settings, runtime)
			if err := write(command, format, answer); err != nil {
				return err
			}
			if !good {
				return errNotGood
			}
			return nil
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return command
}

func write(command *cobra.Command, format string, answer any) error {
	switch format {
	case "text":
		_, err := fmt.Fprintln(command.OutOrStdout(), answer)
		return err
	case "json":
		encoder := json.NewEncoder(command.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(answer)
	}
	return fmt.Errorf("--output is %q: expected text or json", format)
}
