// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

func trafficCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "traffic [POD|NAMESPACE/POD|deploy/NAME]",
		Short: "Show how many connections go through the proxy, and how many past it",
		Long: `Show how many connections of a pod go through its proxy, and how many past it, by
decision and reason, since its rules were written. Without a pod, show all pods, or with
--namespace those of one namespace, the pods with the most exempt connections first.

It executes "capture-cni-node traffic" in the guards' containers, which changes nothing.`,
		Args: cobra.MaximumNArgs(1),
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, args []string) (err error) {
			ctx, text := command.Context(), writeTraffic
			var t fleet.Traffic
			if len(args) == 0 {
				t, err = o.explainer(client).Traffic(ctx, o.overrides.Context.Namespace)
			} else {
				text = writePodTraffic
				var namespace, name string
				if namespace, name, err = o.podOf(ctx, client, args[0]); err == nil {
					t, err = o.explainer(client).PodTraffic(ctx, namespace, name)
				}
			}
			if err != nil {
				return err
			}
			return write(o, command.OutOrStdout(), t, outcome(true, len(t.Unknown)), text)
		}),
	}
}

func writeTraffic(out io.Writer, t fleet.Traffic) {
	rows := table{header: []string{"NAMESPACE", "POD", "MESH", "CAPTURED", "EXEMPT", "REFUSED", "FENCED"}}
	for _, pod := range t.Pods {
		if pod.Unknown == "" {
			rows.add(pod.Namespace, pod.Name, string(pod.Mesh), fmt.Sprint(pod.Sum("captured")),
				fmt.Sprint(pod.Sum("exempt")), fmt.Sprint(pod.Sum("refused")), fmt.Sprint(pod.Sum("fenced")))
		}
	}
	if len(rows.rows)+len(t.Unknown) == 0 {
		fmt.Fprintln(out, "No pods found.")
	}
	rows.write(out)
	writeNotes(out, t.Unknown, nil)
}

func writePodTraffic(out io.Writer, t fleet.Traffic) {
	rows := table{header: []string{"DECISION", "REASON", "CONNECTIONS"}}
	for _, pod := range t.Pods {
		for _, c := range pod.Connections {
			rows.add(c.Decision, c.Reason, fmt.Sprint(c.Count))
		}
	}
	if len(rows.rows)+len(t.Unknown) == 0 {
		fmt.Fprintln(out, "No connections found.")
	}
	rows.write(out)
	writeNotes(out, t.Unknown, nil)
}
