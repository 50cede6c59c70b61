// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

func explainCommand(o *options) *cobra.Command {
	var packet packetFlags
	command := &cobra.Command{
		Use:   "explain NAMESPACE/POD",
		Short: "Explain how a pod of this node is captured or, with --to, which rule decides about a packet",
		Long: `Explain how a pod of this node is captured: the annotations at its creation and
now, the rules in the kernel, their differences, and the result of its last ADD.
With --to, print instead which rule decides about the first packet of a new
connection, the packet's path through the rules, what that assumes, and what in the
pod's network namespace keeps it from being certain. Rules are counted as nftables
holds them.
Needs what the guard needs, and runs in its container:

  kubectl exec --namespace capture-cni AGENT --container guard -- /capture-cni-node explain shop/web
  kubectl exec --namespace capture-cni AGENT --container guard -- /capture-cni-node explain shop/web --to 10.1.2.3:443 --as 1000:1000`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok || namespace == "" || name == "" {
				return fmt.Errorf("%q: expected NAMESPACE/POD", args[0])
			}
			traced, err := packet.asked(command.Flags())
			if err != nil {
				return err
			}
			var p capture.Packet
			if traced {
				if p, err = packet.packet(); err != nil {
					return err
				}
			}
			g, err := o.newGuard(guard.Settings{Policy: guard.ReportOnly}, prometheus.NewRegistry())
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			if traced {
				return g.Trace(command.Context(), namespace, name, p, out)
			}
			return g.Explain(command.Context(), namespace, name, out)
		},
	}
	packet.declare(command.Flags(), "that of the pod's routes")
	return command
}
