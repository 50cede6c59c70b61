// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

func explainCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "explain NAMESPACE/POD",
		Short: "Explain how a pod is captured, or why it is not",
		Long: `Explain how a pod is captured, or why it is not: the cause, the evidence, and what to
do. It works also for a pod that does not start, is gone, or is not in the mesh.

It executes "capture-cni-node explain" in the agent's pod on the pod's node, which
changes nothing. Without the permission for that, it goes by the pod, its Events and
the Lease of its node.`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			namespace, name, err := podName(args[0])
			if err != nil {
				return err
			}
			explainer, err := o.explainer()
			if err != nil {
				return err
			}
			e, err := explainer.Explain(command.Context(), namespace, name)
			if err != nil {
				return err
			}
			if err := o.writeExplanation(command.OutOrStdout(), e); err != nil {
				return err
			}
			if !e.Good() {
				return errNotGood
			}
			return nil
		},
	}
}

// explainer returns what asks the cluster and its agents about a pod.
func (o *options) explainer() (fleet.Explainer, error) {
	client, access, err := o.client()
	if err != nil {
		return fleet.Explainer{}, err
	}
	return fleet.Explainer{Client: client, Exec: fleet.NewExec(access, client), Namespace: o.agentNamespace}, nil
}

func (o *options) writeExplanation(out io.Writer, e *fleet.Explanation) error {
	if done, err := o.writeObject(out, e); done {
		return err
	}
	place := ""
	if e.Node != "" {
		place = " on node " + e.Node
	}
	fmt.Fprintf(out, "%s%s: ", printable(e.Pod), printable(place))
	writeState(out, e.State)
	fmt.Fprintln(out)
	if e.Cause != "" {
		fmt.Fprintf(out, "\nCause\n  %s\n", printable(e.Cause))
	}
	if len(e.Evidence) > 0 {
		fmt.Fprintln(out, "\nEvidence")
	}
	for _, evidence := range e.Evidence {
		lines := strings.Split(evidence.Text, "\n")
		if len(lines) == 1 {
			fmt.Fprintf(out, "  %s: %s\n", printable(evidence.Source), printable(lines[0]))
			continue
		}
		fmt.Fprintf(out, "  %s:\n", printable(evidence.Source))
		for _, line := range lines {
			fmt.Fprintf(out, "    %s\n", printable(line))
		}
	}
	if e.Next != "" {
		fmt.Fprintf(out, "\nNext\n  %s\n", printable(e.Next))
	}
	return nil
}
