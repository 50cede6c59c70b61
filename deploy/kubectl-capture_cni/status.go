// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
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
		Long: `Show the state of all nodes and of the pods in the mesh: what needs attention, and
the next step for each. With -o wide, all nodes.

It reads the agents' DaemonSets and Leases and the pods by get and list, and nothing on the nodes.`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) (err error) {
			read := func(ctx context.Context) (*fleet.Fleet, error) { return fleet.Read(ctx, client, o.agentNamespace) }
			var f *fleet.Fleet
			if wait {
				f, err = waitUntilGood(command.Context(), read, timeout, command.ErrOrStderr())
			} else {
				f, err = read(command.Context())
			}
			if err != nil {
				return err
			}
			return write(o, command.OutOrStdout(), f, f.Good(), o.writeStatus)
		}),
	}
	command.Flags().BoolVar(&wait, "wait", false, "wait until nothing needs attention")
	command.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "with --wait: how long")
	return command
}

const waitInterval = 3 * time.Second // between two looks at the fleet

// waitUntilGood reads the fleet until nothing needs attention, or the time is over, and
// writes its progress. It returns the last state.
func waitUntilGood(ctx context.Context, read func(context.Context) (*fleet.Fleet, error), timeout time.Duration, progress io.Writer) (*fleet.Fleet, error) {
	ends := time.After(timeout)
	last := ""
	for {
		f, err := read(ctx)
		if err == nil && f.Good() {
			return f, nil
		}
		line := ""
		if err != nil {
			line = err.Error()
		} else {
			line = fmt.Sprintf("waiting: nodes: %s; pods of the mesh: %s", countNodes(f, stateOf), counts(f.States))
		}
		if line != last {
			writeProgress(progress, "%s", line)
			last = line
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ends:
			return f, err
		case <-time.After(waitInterval):
		}
	}
}

func stateOf(n fleet.Node) string { return string(n.State) }

// countNodes returns how many nodes have each value.
func countNodes(f *fleet.Fleet, value func(fleet.Node) string) string {
	numbers := map[string]int{}
	for _, node := range f.Nodes {
		numbers[value(node)]++
	}
	return counts(numbers)
}

// counts returns numbers by name, the largest first.
func counts[K ~string](numbers map[K]int) string {
	names := slices.SortedFunc(maps.Keys(numbers), func(a, b K) int {
		return cmp.Or(cmp.Compare(numbers[b], numbers[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, name := range names {
		if numbers[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", numbers[name], name))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

func (o *options) writeStatus(out io.Writer, f *fleet.Fleet) {
	summary := table{header: []string{"nodes", countNodes(f, stateOf)}}
	summary.add("agents", countNodes(f, func(n fleet.Node) string { return cmp.Or(n.Version, "unknown") }))
	summary.add("pods", counts(f.States))
	if len(f.Exempt) > 0 {
		summary.add("exempt", counts(f.Exempt))
	}
	summary.write(out)
	o.writeNodes(out, f)
	writePods(out, slices.DeleteFunc(slices.Clone(f.Pods), func(p fleet.Pod) bool { return !p.State.IsMissing() }))
	writeNotes(out, f.Notes)
}

func (o *options) writeNodes(out io.Writer, f *fleet.Fleet) {
	wide := o.output == "wide"
	nodes := table{header: []string{"NODE", "STATE", "REPORTED", "REASON"}}
	if wide {
		nodes.header = []string{"NODE", "STATE", "REPORTED", "VERSION", "MODE", "MESHED", "AGENT", "REASON"}
	}
	for _, node := range f.Nodes {
		switch reasons := strings.Join(node.Reasons, "; "); {
		case wide:
			nodes.add(node.Name, string(node.State), age(node.Reported), node.Version, string(node.Mode), fmt.Sprint(node.Meshed), node.Agent, reasons)
		case !node.State.Good():
			nodes.add(node.Name, string(node.State), age(node.Reported), reasons)
		}
		nodes.next(node.Name, node.Next)
	}
	if len(nodes.rows) > 0 {
		fmt.Fprintln(out)
		nodes.write(out)
	}
}

// age returns the time since a moment.
func age(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return time.Since(at).Round(time.Second).String() + " ago"
}

func writeNotes(out io.Writer, notes []string) {
	for _, note := range notes {
		fmt.Fprintf(out, "\nNote: %s\n", printable(note))
	}
}
