// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

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
		RunE: func(command *cobra.Command, _ []string) error {
			_, access, err := o.client()
			if err != nil {
				return err
			}
			cluster, err := precheck.Read(command.Context(), access, o.agentNamespace)
			if err != nil {
				return err
			}
			report := precheck.Check(cluster, o.agentNamespace)
			if err := o.writePrecheck(command.OutOrStdout(), report); err != nil {
				return err
			}
			if !report.Good() {
				return errNotGood
			}
			return nil
		},
	}
}

func (o *options) writePrecheck(out io.Writer, report *precheck.Report) error {
	if done, err := o.writeObject(out, report); done {
		return err
	}
	results := table{header: []string{"RESULT", "SUBJECT", "FOUND"}}
	for _, result := range report.Results {
		results.add(string(result.Level), result.Subject, result.Text)
	}
	results.write(out)
	var steps nextSteps
	for _, result := range report.Results {
		steps.add(result.Subject, result.Next)
	}
	steps.write(out)
	if !report.Good() {
		fmt.Fprintln(out, "\nSolve the problems first. Then install it by:")
	} else {
		fmt.Fprintln(out, "\nInstall it by:")
	}
	for _, command := range report.Commands {
		fmt.Fprintln(out, "  "+printable(command))
	}
	return nil
}
