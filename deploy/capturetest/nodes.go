// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

const allNodes = "all"

// choose returns the nodes to test. If names contains nodes, choose returns these in any state.
// Otherwise it chooses among the nodes with an agent that captures pods, and returns an error while
// agents are not ready.
func choose(f *fleet.Fleet, names []string) (nodes []fleet.Node, err error) {
	if len(names) > 0 && !slices.Equal(names, []string{allNodes}) {
		for _, name := range names {
			i := slices.IndexFunc(f.Nodes, func(n fleet.Node) bool { return n.Name == name })
			if i < 0 {
				return nil, fmt.Errorf("--nodes has %q, where neither an agent nor a pod of the mesh runs: "+
					"expected nodes of kubectl capture-cni status -o wide, or %s", name, allNodes)
			}
			nodes = append(nodes, f.Nodes[i])
		}
		return nodes, nil
	}
	nodes = slices.DeleteFunc(slices.Clone(f.Nodes), func(n fleet.Node) bool { return n.Agent == "" || n.State == fleet.Removed })
	if err := notReady(f); err != nil {
		return nil, err
	}
	switch {
	case len(nodes) == 0:
		return nil, fmt.Errorf("no node has an agent of namespace %s that captures pods: see kubectl capture-cni status", f.Namespace)
	case len(names) > 0:
		return nodes, nil
	}
	return oneOfEachKind(nodes), nil
}

// oneOfEachKind returns the first node of each kind, but at least two nodes if there are two.
func oneOfEachKind(nodes []fleet.Node) (chosen []fleet.Node) {
	kinds := map[string]bool{}
	for _, node := range nodes {
		if !kinds[node.Kind] {
			kinds[node.Kind] = true
			chosen = append(chosen, node)
		}
	}
	if len(chosen) == 1 && len(nodes) > 1 {
		chosen = append(chosen, nodes[1])
	}
	return chosen
}

const maxReasons = 3

// notReady returns an error with the first reasons for which agents are not ready.
func notReady(f *fleet.Fleet) error {
	var reasons []string
	for _, set := range f.DaemonSets {
		if !set.Good() {
			reasons = append(reasons, fmt.Sprintf("DaemonSet %s: %s", set.Name, set))
		}
	}
	for _, node := range f.Nodes {
		if !node.State.Good() {
			reasons = append(reasons, describe(node))
		}
	}
	if len(reasons) == 0 {
		return nil
	}
	more := ""
	if others := len(reasons) - maxReasons; others > 0 {
		reasons, more = reasons[:maxReasons], fmt.Sprintf(", and %d more reasons", others)
	}
	return fmt.Errorf("agents are not ready: %s%s. Wait for them by kubectl capture-cni status --wait, or name nodes by --nodes",
		strings.Join(reasons, "; "), more)
}

// notesOn returns a note for each of the nodes that needs attention.
func notesOn(nodes []fleet.Node) (notes []string) {
	for _, node := range nodes {
		if !node.State.Good() {
			notes = append(notes, describe(node)+"; next: "+cmp.Or(node.Findings.Next(), "kubectl capture-cni status --wait"))
		}
	}
	return notes
}

func describe(node fleet.Node) string {
	return fmt.Sprintf("node %s (%s): %s", node.Name, node.State, strings.Join(node.Findings.Each(report.Finding.Summary), ", "))
}
