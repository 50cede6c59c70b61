// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

func explainCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "explain POD|NAMESPACE/POD|deploy/NAME",
		Short: "Explain how a pod is captured, or why it is not",
		Long: `Explain how a pod is captured, or why it is not: the cause, the evidence, and what to
do. It works also for a pod that does not start, is gone, or is not in the mesh.

It executes "capture-cni-node explain" in the agent's pod on the pod's node, which
changes nothing. Without the permission for that, it goes by the pod, its Events and
the Lease of its node.`,
		Args: cobra.ExactArgs(1),
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, args []string) error {
			namespace, name, err := o.podOf(command.Context(), client, args[0])
			if err != nil {
				return err
			}
			e, err := o.explainer(client).Explain(command.Context(), namespace, name)
			if err != nil {
				return err
			}
			return write(o, command.OutOrStdout(), e, outcome(e.Good() || e.Unanswered() > 0, e.Unanswered()), writeExplanation)
		}),
	}
}

// explainer returns an Explainer that sends requests to the cluster and its agents.
func (o *options) explainer(client *fleet.Client) fleet.Explainer {
	return fleet.Explainer{Client: client, Exec: client.Exec, Namespace: o.agentNamespace, Version: config.OwnVersion()}
}

func writeExplanation(out io.Writer, e *fleet.Explanation) {
	place := ""
	if e.Node != "" {
		place = " on node " + e.Node
	}
	fmt.Fprintf(out, "%s%s: ", printable(e.Pod), printable(place))
	writeState(out, string(e.State))
	fmt.Fprintln(out)
	if e.Finding.Reason != "" {
		fmt.Fprintln(out, "\nCause")
		writeLines(out, "  ", e.Finding.Code.Mark(e.Finding.Reason))
	}
	writeEvidence(out, e.Evidence, e.Finding.Reason)
	if e.Finding.Next != "" {
		fmt.Fprint(out, "\nNext\n"+wrap("  ", "  "+furtherIndent, report.WithURLs(e.Finding.Next)))
	}
	writeCodesPage(out, e.Finding.Code != "")
}

// withoutCause returns a Replacer that replaces an explanation's cause in other texts, so that the cause
// is printed only once. If the cause has several parts, separated by colons, it replaces the text after
// the first part. It replaces nothing for a short cause.
func withoutCause(cause string) *strings.Replacer {
	if _, said, found := strings.Cut(cause, ": "); found {
		cause = said
	}
	if len(cause) < 20 { // a short text could be part of any other text by chance
		return strings.NewReplacer()
	}
	const already = "(the cause above)"
	return strings.NewReplacer(cause, already, strings.ReplaceAll(cause, "\n", "\n"+report.Indent), already)
}

// writeEvidence writes the evidence of an explanation, one source after another. It does not repeat the
// cause.
func writeEvidence(out io.Writer, e fleet.Evidence, cause string) {
	if reflect.ValueOf(e).IsZero() {
		return
	}
	fmt.Fprintln(out, "\nEvidence")
	once := withoutCause(cause)
	line := func(source, format string, args ...any) {
		fmt.Fprint(out, wrap("  "+printable(source)+": ", "  "+furtherIndent, once.Replace(fmt.Sprintf(format, args...))))
	}
	for _, event := range e.Events {
		line("event", "%s %s, %d times, last at %s: %s", event.Type, event.Reason, event.Count, event.Last.Format(time.RFC3339), event.Message)
	}
	if e.Pod != nil {
		line("pod", "%s, created %s, UID %s", e.Pod.Phase, e.Pod.Created.Format(time.RFC3339), e.Pod.UID)
	}
	if e.Node != nil {
		line("node", "%s, agent %s", strings.TrimSuffix(string(e.Node.State)+": "+e.Node.Findings.Summary(), ": "),
			cmp.Or(e.Node.Version, "of an unknown version"))
	}
	if e.Agent != nil {
		fmt.Fprintf(out, "  %s:\n", printable("agent "+e.Agent.Agent+", container "+e.Agent.Container))
		for fact := range strings.Lines(once.Replace(e.Agent.Answer.Text())) {
			at := min(len(report.Indent), len(fact)-1)
			fmt.Fprint(out, wrap("    "+fact[:at], "    "+report.Indent, fact[at:]))
		}
	}
	for _, missing := range e.Missing {
		line(missing.Source, "not known: %s", missing.Reason)
	}
}
