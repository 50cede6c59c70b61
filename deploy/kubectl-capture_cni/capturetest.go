// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/deploy/capturetest"
	"github.com/capture-cni/capture-cni/deploy/fleet"
)

func testCommand(o *options) *cobra.Command {
	var test capturetest.Test
	var modes []string
	var archive string
	command := &cobra.Command{
		Use:   "test",
		Short: "Test on the cluster that pods are captured",
		Long: `Test on the cluster that pods are captured. It creates two pods of the agents' own
image and a Service, connects one pod to the other by IPv4 and IPv6, and removes them.
It does so for each mode and each tested node, with the client there and the server on
the next node. Each connection must pass the client's proxy and the server's, for which
the pods have stand-ins, but bypass the proxy whose pod excludes the port. No injector
has to run.

REDIRECT is tested in a namespace of its own, in which Pod Security enforces
"restricted". TPROXY is tested in another one with "privileged", since its proxy has
NET_ADMIN; it is skipped if the API server refuses that. With --namespace, both are
tested in that namespace, in which nothing may inject pods.

It tests one node of each kind (kernel, runtime, OS image, architecture), but at least
two nodes if there are two, or with --nodes all every node; all agents must be ready.
Nodes that --nodes names are tested in any state.

If a check fails, it packs an archive as the command report does. The exit status is 2
also if nothing could be tested. --output junit writes the results for a CI system.`,
		Example: `  kubectl capture-cni test
  kubectl capture-cni test --nodes all
  kubectl capture-cni test --nodes node-1 --mode redirect
  kubectl capture-cni test --output junit >capture.xml`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) error {
			if err := readTest(&test, modes); err != nil {
				return err
			}
			state, err := fleet.Read(command.Context(), client, o.agentNamespace)
			if err != nil {
				return err
			}
			test.Client, test.Fleet, test.Explain, test.Poll = client, state, o.explainer(client).Explain, time.Second
			test.Namespace = o.overrides.Context.Namespace
			test.Archive = func(ctx context.Context, nodes []string) (string, error) {
				return o.packReport(ctx, client, archive, nodes, command.ErrOrStderr())
			}
			test.Progress = func(format string, args ...any) { writeProgress(command.ErrOrStderr(), format, args...) }
			report, failure := test.Run(command.Context())
			if report == nil {
				return failure
			}
			text := writeTest
			if o.output == junit {
				text = writeJUnit
			}
			err = write(o, command.OutOrStdout(), report, outcome(report.Count(capturetest.Failed) == 0, 0), text)
			switch {
			case failure != nil:
				return failure
			case err == nil && report.Count(capturetest.Passed) == 0:
				return errors.New("nothing could be tested")
			}
			return err
		}),
	}
	flags := command.Flags()
	flags.StringSliceVar(&test.Nodes, "nodes", nil, "nodes to test, or all; empty: one of each kind")
	flags.StringVar(&test.Image, "image", "",
		"image of the pods, of this version of capture-cni; empty: that of the agents, which the nodes need not pull")
	flags.StringSliceVar(&modes, "mode", []string{"redirect", "tproxy"}, "how inbound traffic is captured: redirect, tproxy or both")
	flags.DurationVar(&test.Timeout, "timeout", 2*time.Minute, "how long to wait for each pod")
	flags.StringVar(&archive, "report", "", "file to write if a check fails, which must not exist; empty: capture-cni-TIME.tar.gz")
	return command
}

func readTest(test *capturetest.Test, modes []string) error {
	for _, name := range modes {
		mode := capturetest.Mode(strings.ToUpper(name))
		if mode != capturetest.Redirect && mode != capturetest.TProxy {
			return fmt.Errorf("--mode is %q: expected redirect, tproxy or both, with a comma between", name)
		}
		test.Modes = append(test.Modes, mode)
	}
	if test.Timeout <= 0 {
		return fmt.Errorf("--timeout is %s: expected a positive duration such as 2m", test.Timeout)
	}
	return nil
}

func writeTest(out io.Writer, report *capturetest.Report) {
	results := table{header: []string{"CLIENT", "SERVER", "MODE", "FAMILY", "CONNECTION", "RESULT", "CAUSE"}}
	for _, r := range report.Results {
		results.add(r.Client, r.Server, string(r.Mode), r.Family, r.Check, string(r.Verdict()), r.Finding.Code.Mark(r.Finding.Reason))
		results.next(string(r.Mode), r.Finding.Next)
	}
	results.write(out)
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped; nodes tested: %s\n",
		report.Count(capturetest.Passed), report.Count(capturetest.Failed),
		report.Count(capturetest.Skipped), printable(strings.Join(report.Nodes, ", ")))
	writeNotes(out, nil, report.Notes)
	writeCodesPage(out, report.Count(capturetest.Passed) < len(report.Results))
	if report.Archive != "" {
		fmt.Fprintf(out, "\nReport: %s\n", printable(report.Archive))
	}
}
