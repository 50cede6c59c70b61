// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/deploy/precheck"
	"github.com/capture-cni/capture-cni/install/report"
)

func precheckCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "precheck",
		Short: "Check a cluster before capture-cni is installed",
		Long: `Check a cluster before capture-cni is installed: the versions of Kubernetes,
runtimes and kernels, what each revision of istiod injects, plugins of other meshes,
ambient mode, the settings of Cilium and Calico, and Pod Security. It prints the
commands that install or upgrade the chart with values that fit, once they are safe
to run, or the guide to follow.

It reads nodes, DaemonSets, ConfigMaps, webhooks, two ClusterRoleBindings, the
namespace and Calico's FelixConfiguration by get and list, and changes nothing.`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) error {
			cluster, err := precheck.Read(command.Context(), client, o.agentNamespace)
			if err != nil {
				return err
			}
			found := precheck.Check(cluster, o.agentNamespace)
			return write(o, command.OutOrStdout(), found, outcome(found.Good(), len(found.Results.Of(report.NotKnown))), writePrecheck)
		}),
	}
}

func writePrecheck(out io.Writer, check *precheck.Report) {
	results := table{header: []string{"RESULT", "SUBJECT", "FOUND"}}
	for _, result := range check.Results {
		text := result.Reason
		if result.Severity != report.OK {
			text = result.Code.Mark(text)
		}
		results.add(string(result.Severity), result.Subject, text)
		results.next(result.Subject, result.Next)
	}
	results.write(out)
	writeCodesPage(out, len(check.Results.Of(report.OK)) < len(check.Results))
	switch {
	case !check.Good():
		fmt.Fprintln(out, "\nSolve the problems, and run this again.")
	case check.Guide != "":
		fmt.Fprintln(out, "\nFollow "+printable(report.WithURLs(check.Guide))+".")
	case len(check.Results.Of(report.NotKnown)) > 0:
		fmt.Fprintln(out, "\nRun this again with permission for what is unknown, because that may require other values, or a guide.")
	default:
		fmt.Fprintln(out, "\nRun:")
	}
	for _, command := range check.Commands {
		fmt.Fprintln(out, "  "+printable(command))
	}
}
