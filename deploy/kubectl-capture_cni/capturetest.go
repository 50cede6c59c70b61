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

// testFlags are the flags of the command test.
type testFlags struct {
	nodes, modes  []string
	image, report string
	timeout       time.Duration
}

func testCommand(o *options) *cobra.Command {
	var f testFlags
	command := &cobra.Command{
		Use:   "test",
		Short: "Test on the cluster that pods are captured",
		Long: `Test on the cluster that pods are captured. It creates two pods and a Service of the
agents' own image, connects one pod to the other by IPv4 and IPv6, and removes them.
Each connection must pass the client's proxy and the server's, for which the pods have
stand-ins, and connections to excluded ports must not. No injector has to run.

REDIRECT is tested in a namespace of its own, in which Pod Security enforces
"restricted". TPROXY is tested in another one with "privileged", since its proxy has
NET_ADMIN; it is skipped if the API server refuses that. With --namespace, both are
tested in that namespace, in which nothing may inject pods.

If a check fails, it packs an archive as the command report does. The exit status is 2
also if nothing could be tested.`,
		Example: `  kubectl capture-cni test
  kubectl capture-cni test --node node-1 --mode redirect`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) error {
			test, err := o.newTest(command, client, f)
			if err != nil {
				return err
			}
			report, failure := test.Run(command.Context())
			if report == nil {
				return failure
			}
			err = write(o, command.OutOrStdout(), report, !report.Has(capturetest.Failed), writeTest)
			switch {
			case failure != nil:
				return failure
			case err == nil && !report.Has(capturetest.Passed):
				return errors.New("nothing could be tested")
			}
			return err
		}),
	}
	flags := command.Flags()
	flags.StringSliceVar(&f.nodes, "node", nil, "node of both pods, or two nodes: of the client and of the server; empty: two nodes with an agent, if there are two")
	flags.StringVar(&f.image, "image", "", "image of the pods, of this version of capture-cni; empty: that of the agents, which the nodes need not pull")
	flags.StringSliceVar(&f.modes, "mode", []string{"redirect", "tproxy"}, "how inbound traffic is captured: redirect, tproxy or both")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait for each pod")
	flags.StringVar(&f.report, "report", "", "file to write if a check fails, which must not exist; empty: capture-cni-TIME.tar.gz")
	return command
}

func (o *options) newTest(command *cobra.Command, client *fleet.Client, f testFlags) (*capturetest.Test, error) {
	modes, err := f.parseModes()
	if err != nil {
		return nil, err
	}
	if len(f.nodes) > 2 {
		return nil, fmt.Errorf("--node is %q: expected one node, or two", strings.Join(f.nodes, ","))
	}
	if f.timeout <= 0 {
		return nil, fmt.Errorf("--timeout is %s: expected a positive duration such as 2m", f.timeout)
	}
	state, err := fleet.Read(command.Context(), client, o.agentNamespace)
	if err != nil {
		return nil, err
	}
	return &capturetest.Test{
		Client: client, Fleet: state, Explain: o.explainer(client).Explain, Poll: time.Second,
		Archive: func(ctx context.Context, nodes []string) (string, error) {
			return o.packReport(ctx, client, f.report, nodes, command.ErrOrStderr())
		},
		Namespace: o.overrides.Context.Namespace, Nodes: f.nodes, Image: f.image, Modes: modes, Timeout: f.timeout,
		Progress: func(format string, args ...any) { writeProgress(command.ErrOrStderr(), format, args...) },
	}, nil
}

func (f testFlags) parseModes() (modes []capturetest.Mode, err error) {
	for _, name := range f.modes {
		switch mode := capturetest.Mode(strings.ToUpper(name)); mode {
		case capturetest.Redirect, capturetest.TProxy:
			modes = append(modes, mode)
		default:
			return nil, fmt.Errorf("--mode is %q: expected redirect, tproxy or both, with a comma between", name)
		}
	}
	return modes, nil
}

func writeTest(out io.Writer, report *capturetest.Report) {
	fmt.Fprintf(out, "client on node %s, server on node %s\n\n", printable(report.Client), printable(report.Server))
	results := table{header: []string{"MODE", "FAMILY", "CONNECTION", "RESULT", "CAUSE"}}
	for _, r := range report.Results {
		results.add(string(r.Mode), r.Family, r.Check, string(r.Verdict), r.Cause)
		results.next(string(r.Mode), r.Next)
	}
	results.write(out)
	writeNotes(out, report.Notes)
	if report.Archive != "" {
		fmt.Fprintf(out, "\nReport: %s\n", printable(report.Archive))
	}
}
