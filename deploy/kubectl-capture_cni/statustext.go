// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

func stateOf(n fleet.Node) string { return string(n.State) }

func versionOf(n fleet.Node) string { return cmp.Or(n.Version, "unknown") }

// countNodes returns the number of nodes for each value that the function value returns.
func countNodes(f *fleet.Fleet, value func(fleet.Node) string) map[string]int {
	numbers := map[string]int{}
	for _, node := range f.Nodes {
		numbers[value(node)]++
	}
	return numbers
}

// counts formats the numbers that are not 0, with their names, the largest number first. If all are 0,
// it returns "none".
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

// agents describes the progress of the DaemonSets, or returns "none".
func agents(f *fleet.Fleet) string {
	var parts []string
	for _, set := range f.DaemonSets {
		part := set.String()
		if len(f.DaemonSets) > 1 {
			part = set.Name + ": " + part
		}
		parts = append(parts, part)
	}
	return cmp.Or(strings.Join(parts, "; "), "none")
}

func (o *options) writeStatus(out io.Writer, f *fleet.Fleet) {
	summary := table{header: []string{"nodes", counts(countNodes(f, stateOf))}}
	summary.add("agents", agents(f))
	summary.add("versions", counts(countNodes(f, versionOf)))
	summary.add("pods", counts(f.States))
	if len(f.Exempt) > 0 {
		summary.add("exempt", counts(f.Exempt))
	}
	if len(f.Updates) > 0 {
		summary.add("updates", counts(f.Updates)+" (values of guard.update)")
	}
	summary.write(out)
	if o.output == "wide" {
		writeAllNodes(out, f.Nodes)
	}
	bad := slices.DeleteFunc(slices.Clone(f.Nodes), func(n fleet.Node) bool { return n.State.Good() })
	writeNodes(out, bad)
	missing := slices.DeleteFunc(slices.Clone(f.Pods), func(p fleet.Pod) bool { return !p.State.IsMissing() })
	writePods(out, groups(missing, findingOfPod), false)
	writeNotes(out, f.Unknown, f.Notes)
	writeCodesPage(out, len(bad)+len(missing)+len(f.Unknown)+len(f.Notes) > 0)
}

func writeAllNodes(out io.Writer, all []fleet.Node) {
	nodes := table{header: []string{"NODE", "STATE", "REPORTED", "VERSION", "MODE", "BACKEND", "MESHED", "AGENT"}}
	for _, node := range all {
		nodes.add(node.Name, string(node.State), age(node.Reported), node.Version,
			string(node.Mode), node.Backend, fmt.Sprint(node.Meshed), node.Agent)
	}
	nodes.writeBelow(out)
}

// writeNodes writes a table of nodes. More than maxAlike nodes with the same state and reason share one
// row.
func writeNodes(out io.Writer, bad []fleet.Node) {
	nodes := table{header: []string{"NODE", "STATE", "REPORTED", "REASON"}}
	for _, alike := range groups(bad, findingOfNode) {
		node := alike[0]
		nodes.add(node.Name+alike.more(), string(node.State), age(node.Reported), node.Findings.Summary())
		nodes.next(node.Name, node.Findings.Next())
	}
	nodes.writeBelow(out)
}

func age(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return time.Since(at).Round(time.Second).String() + " ago"
}

// writeCodesPage writes the URL of the page that explains codes, if printed says that the output
// contains codes.
func writeCodesPage(out io.Writer, printed bool) {
	if printed {
		fmt.Fprintln(out, "\nCodes: "+report.WithURLs(report.CodesPage))
	}
}

func writeNotes(out io.Writer, unknown, notes []string) {
	for _, what := range unknown {
		fmt.Fprint(out, "\n"+wrap("", furtherIndent, "Not known: "+what))
	}
	for _, note := range notes {
		fmt.Fprint(out, "\n"+wrap("", furtherIndent, "Note: "+note))
	}
}
