// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

func statusCommand(o *options) *cobra.Command {
	var wait bool
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "status",
		Short: "Show the state of all nodes and of the pods in the mesh",
		Long: `Show the state of all nodes and of the pods in the mesh: numbers, and what needs
attention, with the next step. With -o wide, also show a row for each node.

It lists the agents' DaemonSets and Leases, Nodes, pods and, if some pods do not start,
Events. With --wait, it also watches these objects, except Events. It reads nothing on
the nodes.`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) (err error) {
			var f *fleet.Fleet
			if wait {
				f, err = waitUntilGood(command.Context(), client, o.agentNamespace, timeout, command.ErrOrStderr())
			} else {
				f, err = fleet.Read(command.Context(), client, o.agentNamespace)
			}
			if err != nil {
				return err
			}
			return write(o, command.OutOrStdout(), f, outcome(f.Good(), len(f.Unknown)), o.writeStatus)
		}),
	}
	command.Flags().BoolVar(&wait, "wait", false, "wait until all agents are updated and have reported, and nothing needs attention")
	command.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "with --wait: how long")
	return command
}

// waitUntilGood watches the fleet until nothing needs attention or the timeout has passed, and writes
// its progress. It returns the last state, or an error if the state could not be read.
func waitUntilGood(
	ctx context.Context, client *fleet.Client, namespace string, timeout time.Duration, progress io.Writer,
) (last *fleet.Fleet, err error) {
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = fmt.Errorf("the API server has not answered within %s", timeout)
	line, begun := "", time.Now()
	ended := fleet.Watch(within, client, namespace, func(f *fleet.Fleet, fault error) (done bool) {
		last, err = f, fault
		next := ""
		if err != nil {
			next = err.Error()
		} else {
			next = fmt.Sprintf("waiting: agents: %s; nodes: %s; pods of the mesh: %s",
				agents(f), counts(countNodes(f, stateOf)), counts(f.States))
		}
		if done = err == nil && f.Good(); !done && next != line {
			writeProgress(progress, "%s: %s", time.Since(begun).Round(time.Second), next)
			line = next
		}
		return done
	})
	if ended != nil && !errors.Is(ended, context.DeadlineExceeded) || ctx.Err() != nil {
		return nil, errors.Join(ended, ctx.Err())
	}
	if last != nil {
		last.ReadFailures(ctx, client)
	}
	return last, err
}
