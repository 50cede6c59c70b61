// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/guard"
)

func explainCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "explain NAMESPACE/POD",
		Short: "Explain how a pod of this node is captured",
		Long: `Explain how a pod of this node is captured: the annotations at its creation and
now, the rules in the kernel, their differences, and the result of its last ADD.
Needs what the guard needs, and runs in its container:

  kubectl exec --namespace capture-cni AGENT --container guard -- /capture-cni-node explain shop/web`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok || namespace == "" || name == "" {
				return fmt.Errorf("%q: expected NAMESPACE/POD", args[0])
			}
			g, err := o.newGuard(guard.Settings{Policy: guard.ReportOnly}, prometheus.NewRegistry())
			if err != nil {
				return err
			}
			return g.Explain(command.Context(), namespace, name, command.OutOrStdout())
		},
	}
}
