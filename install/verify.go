// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/node"
)

func verifyCommand(o *options) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "verify",
		Short: "Is the node as run would have it?",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := o.settings()
			if err != nil {
				return err
			}
			log := newLog()
			n := node.New(settings, nil, o.runtime(command.Context(), log), log)
			report := n.Verify(command.Context())
			if err := answer(command, format, report, report.String()); err != nil {
				return err
			}
			if !report.Good() {
				return errNotGood
			}
			return nil
		},
	}
	declareOutput(command, &format)
	return command
}

func declareOutput(command *cobra.Command, format *string) {
	command.Flags().StringVarP(format, "output", "o", "text", "text or json")
}

// answer writes a command's answer for people, or for programs.
func answer(command *cobra.Command, format string, value any, text string) error {
	switch format {
	case "text":
		_, err := fmt.Fprintln(command.OutOrStdout(), text)
		return err
	case "json":
		encoder := json.NewEncoder(command.OutOrStdout())
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	return fmt.Errorf("--output is %q: expected text or json", format)
}
