// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
)

func trafficCommand(o *options) *cobra.Command {
	var update guard.Update
	command := &cobra.Command{
		Use:   "traffic [NAMESPACE/POD]",
		Short: "Print the connections of the pods of this node by decision and reason, as JSON",
		Long: `Print how many connections the rules of each pod of the mesh on this node have decided
about since they were written, by decision and reason, as JSON.

Needs what the guard needs, and runs in its container.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			namespace, name := "", ""
			if len(args) > 0 {
				namespace, name, _ = strings.Cut(args[0], "/")
				if namespace == "" || name == "" {
					return fmt.Errorf("%q: expected NAMESPACE/POD", args[0])
				}
			}
			g, err := o.newGuard(guard.Settings{Policy: guard.ReportOnly, Update: update}, prometheus.NewRegistry())
			if err != nil {
				return err
			}
			pods, err := g.Traffic(command.Context(), namespace, name)
			if err != nil {
				return err
			}
			return json.NewEncoder(command.OutOrStdout()).Encode(report.NodeTraffic{Form: report.ExplanationForm, Pods: pods})
		},
	}
	declareUpdate(command.Flags(), &update)
	return command
}
