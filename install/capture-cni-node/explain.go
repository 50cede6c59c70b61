// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/telemetry"
)

func explainCommand(o *options) *cobra.Command {
	var packet packetFlags
	var scope, form string
	var update guard.Update
	command := &cobra.Command{
		Use:   "explain NAMESPACE/POD",
		Short: "Explain how a pod of this node is captured or, with --to, which rule decides about a packet",
		Long: `Explain how a pod of this node is captured: the annotations at its creation and
now, the rules in the kernel, how they differ from the desired rules, and the result
of its last ADD. Of a pod whose sandbox does not run, only that result is known.
With --to, print instead which rule decides about the first packet of a new
connection, the packet's path through the rules, what that assumes, and what in the
pod's network namespace makes the answer uncertain. Rules are numbered as nftables
holds them.

In the installer's container, the command shows only the last ADD. In the guard's
container, it has the sockets and capabilities that it needs:

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
			if scope != scopeNode && scope != scopePods && scope != scopeAll {
				return fmt.Errorf("--scope is %q: expected node, pods or all", scope)
			}
			if form != "text" && form != "json" {
				return fmt.Errorf("--output is %q: expected text or json", form)
			}
			answer, err := o.explain(command.Context(), namespace, name, scope, traced, packet, update)
			if err != nil {
				return err
			}
			if form == "json" {
				return json.NewEncoder(command.OutOrStdout()).Encode(answer)
			}
			_, err = io.WriteString(command.OutOrStdout(), answer.Text())
			return err
		},
	}
	packet.declare(command.Flags(), "that of the pod's routes or, with --in, that of the address --to")
	command.Flags().StringVar(&scope, "scope", scopeAll,
		"what is examined: node for the record of the last ADD, pods or all for the sandbox, too")
	declareUpdate(command.Flags(), &update)
	command.Flags().StringVarP(&form, "output", "o", "text", "text or json")
	return command
}

// explained is an explanation of a pod, or a trace of its packet, which can be printed as text.
type explained interface{ Text() string }

func (o *options) explain(
	ctx context.Context, namespace, name, scope string, traced bool, flags packetFlags, update guard.Update,
) (explained, error) {
	if scope == scopeNode && !traced {
		if o.AgentSocket() == "" {
			return nil, errors.New("agentSocket is empty in netconf: no agent receives records of ADDs")
		}
		return guard.ExplainWithoutSandbox(telemetry.HistoryDirectory(o.AgentSocket()), namespace, name)
	}
	packet, err := flags.packet()
	if traced && err != nil {
		return nil, err
	}
	g, err := o.newGuard(guard.Settings{Policy: guard.ReportOnly, Update: update}, prometheus.NewRegistry())
	switch {
	case err != nil:
		return nil, err
	case traced:
		return g.Trace(ctx, namespace, name, packet)
	}
	return g.Explain(ctx, namespace, name)
}
