// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/node"
)

func preflightCommand(o *options) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "preflight",
		Short: "What would go wrong, before anything is written",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			settings, err := o.settings()
			if err != nil {
				return err
			}
			log := newLog()
			problems := node.Preflight(command.Context(), settings, o.runtime(command.Context(), log))
			text := "nothing stands in the way"
			if len(problems) > 0 {
				text = problems.String()
			}
			if err := answer(command, format, problems, text); err != nil {
				return err
			}
			if problems.Serious() {
				return errNotGood
			}
			return nil
		},
	}
	declareOutput(command, &format)
	return command
}
