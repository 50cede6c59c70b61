// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/record"
)

func reportCommand(o *options) *cobra.Command {
	var address, scope string
	var update guard.Update
	command := &cobra.Command{
		Use:   "report",
		Short: "Write a support bundle of the node and its pods",
		Long: `Write a support bundle of the node and its pods to stdout, a gzipped tar archive.
It contains known fields only: no file of the node is copied. Of conflists and
metrics, it contains only values of a fixed form, and of pods, the annotations that
decide about capture; error messages can quote other annotations. In the installer's
container it describes the node, in the guard's container the pods:

  kubectl exec --namespace capture-cni AGENT --container installer -- /capture-cni-node report > node.tar.gz
  kubectl exec --namespace capture-cni AGENT --container guard -- /capture-cni-node report > pods.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if scope != scopeNode && scope != scopePods && scope != scopeAll {
				return fmt.Errorf("--scope is %q: expected node, pods or all", scope)
			}
			parts := append([]report.BundlePart{{Name: "about.txt", Write: aboutOf(command)}}, o.parts(command.Context(), scope, address, update)...)
			return report.WriteBundle(command.Context(), command.OutOrStdout(), time.Now(), parts)
		},
	}
	command.Flags().StringVar(&address, "listen", "127.0.0.1:15015", "address at which the agent, or the guard, serves its metrics")
	command.Flags().StringVar(&scope, "scope", scopeAll, "what the report describes: node, pods or all")
	declareUpdate(command.Flags(), &update)
	return command
}

// Values of --scope.
const (
	scopeNode = "node"
	scopePods = "pods"
	scopeAll  = "all"
)

func (o *options) parts(ctx context.Context, scope, address string, update guard.Update) []report.BundlePart {
	parts := []report.BundlePart{
		{Name: "kernel/version.txt", Write: kernelVersion},
		{Name: "kernel/modules.txt", Write: kernelModules},
		{Name: "metrics.txt", Write: metricsAt(address)},
	}
	if socket := o.AgentSocket(); socket != "" {
		parts = append(parts, report.BundlePart{Name: "adds.json", Write: recordsIn(telemetry.HistoryDirectory(socket))})
		if scope != scopePods { // the guard's container does not have these files
			parts = append(parts, report.BundlePart{Name: "failures.json", Write: recordsIn(record.Spool(socket))})
		}
	}
	if scope != scopePods {
		n := node.New(o.Settings, nil, o.runtime, o.log)
		parts = append(parts,
			report.BundlePart{Name: "node/verify.json", Write: asJSON(func(ctx context.Context) any { return n.Verify(ctx) })},
			report.BundlePart{Name: "node/preflight.json", Write: asJSON(func(ctx context.Context) any {
				return node.Answers(node.Check(ctx, o.Settings, o.runtime))
			})})
		parts = append(parts, n.Evidence()...)
	}
	if scope != scopeNode {
		parts = append(parts, o.podParts(ctx, update)...)
	}
	return parts
}

// podParts returns a part of the bundle for each running pod of the mesh. If the pods can't be listed,
// it returns one part with the error.
func (o *options) podParts(ctx context.Context, update guard.Update) []report.BundlePart {
	g, err := o.newGuard(guard.Settings{Policy: guard.ReportOnly, Update: update}, prometheus.NewRegistry())
	var pods []string
	if err == nil {
		pods, err = g.Pods(ctx)
	}
	if err != nil {
		return []report.BundlePart{{Name: "pods", Write: func(context.Context, io.Writer) error { return err }}}
	}
	var parts []report.BundlePart
	for _, pod := range pods {
		namespace, name, _ := strings.Cut(pod, "/")
		parts = append(parts, report.BundlePart{
			Name: "pods/" + namespace + "_" + name + ".json",
			Write: func(ctx context.Context, out io.Writer) error {
				explained, err := g.Explain(ctx, namespace, name)
				return errors.Join(err, writeJSON(out, explained))
			},
		})
	}
	return parts
}

// recordsIn returns a function that writes the records in a directory as lines of JSON, the newest
// first, so that the bundle's limit omits the oldest.
func recordsIn(directory string) func(context.Context, io.Writer) error {
	return func(_ context.Context, out io.Writer) error {
		records, err := telemetry.ReadAll(directory)
		if err != nil {
			return err
		}
		encoder := json.NewEncoder(out)
		for _, record := range slices.Backward(records) {
			if err := encoder.Encode(record); err != nil {
				return err
			}
		}
		return nil
	}
}

func asJSON(ask func(context.Context) any) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		return writeJSON(out, ask(ctx))
	}
}

func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
