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
commands that install the chart with values that fit.

It reads nodes, DaemonSets, ConfigMaps and the namespace by get and list, and
changes nothing.`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) error {
			cluster, err := precheck.Read(command.Context(), client, o.agentNamespace)
			if err != nil {
				return err
			}
			report := precheck.Check(cluster, o.agentNamespace)
			return write(o, command.OutOrStdout(), report, outcome(report.Good(), 0), writePrecheck)
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
	if !report.Good() {
		fmt.Fprintln(out, "\nSolve the problems first. Then install it by:")
	} else {
		fmt.Fprintln(out, "\nInstall it by:")
	}
	for _, command := range report.Commands {
		fmt.Fprintln(out, "  "+printable(command))
	}
}
