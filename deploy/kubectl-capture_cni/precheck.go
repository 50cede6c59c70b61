// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/deploy/precheck"
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

It reads nodes, DaemonSets, ConfigMaps, the configurations of webhooks, two
ClusterRoleBindings and the namespace by get and list, and changes nothing.`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) error {
			cluster, err := precheck.Read(command.Context(), client, o.agentNamespace)
			if err != nil {
				return err
			}
			report := precheck.Check(cluster, o.agentNamespace)
			return write(o, command.OutOrStdout(), report, outcome(report.Good(), report.Count(precheck.Unknown)), writePrecheck)
		}),
	}
}

func writePrecheck(out io.Writer, report *precheck.Report) {
	results := table{header: []string{"RESULT", "SUBJECT", "FOUND"}}
	for _, result := range report.Results {
		results.add(string(result.Level), result.Subject, result.Text)
		results.next(result.Subject, result.Next)
	}
	results.write(out)
	switch {
	case !report.Good():
		fmt.Fprintln(out, "\nSolve the problems, and run this again.")
	case report.Guide != "":
		fmt.Fprintln(out, "\nFollow "+printable(report.Guide)+".")
	case report.Count(precheck.Unknown) > 0:
		fmt.Fprintln(out, "\nRun this again with permission for what is unknown: it may need other values, or a guide.")
	default:
		fmt.Fprintln(out, "\nRun:")
	}
	for _, command := range report.Commands {
		fmt.Fprintln(out, "  "+printable(command))
	}
}
