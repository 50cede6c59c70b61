// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

func namesOf(nodes []fleet.Node) (names []string) {
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	return names
}

// TestChoose takes one node of each kind, two at least, all, or those that are named. Only
// the latter may need attention.
func TestChoose(t *testing.T) {
	t.Parallel()
	node := func(name, kind string, state fleet.NodeState) fleet.Node {
		return fleet.Node{Name: name, Kind: kind, State: state, Agent: "agent-" + name}
	}
	ready := func(nodes ...fleet.Node) *fleet.Fleet { return &fleet.Fleet{Namespace: "mesh", Nodes: nodes} }
	a1, a2, b1, removed := node("a1", "a", fleet.Ready), node("a2", "a", fleet.Ready), node("b1", "b", fleet.Ready), node("old", "c", fleet.Removed)
	faulty := node("bad", "a", fleet.Faulty)
	faulty.Findings = report.Findings{{Code: report.AgentFailing, Reason: "ImagePullBackOff", Next: "describe it"}}
	rolling := ready(a1)
	rolling.DaemonSets = []fleet.DaemonSet{{Name: "set", Observed: true, Desired: 2, Updated: 1, Ready: 1, Unavailable: 1}}
	none := node("none", "d", fleet.Ready)
	none.Agent = ""
	many := ready(faulty, faulty, faulty, faulty, faulty)
	for name, test := range map[string]struct {
		fleet *fleet.Fleet
		names []string
		want  string // names, or a part of the error
	}{
		"one of each kind":     {ready(removed, a1, a2, b1), nil, "a1 b1"},
		"two of one kind":      {ready(a1, a2), nil, "a1 a2"},
		"one node":             {ready(a1), nil, "a1"},
		"all":                  {ready(removed, a1, a2, b1), []string{"all"}, "a1 a2 b1"},
		"named":                {ready(a1, faulty), []string{"bad", "a1"}, "bad a1"},
		"an unknown one":       {ready(a1), []string{"elsewhere"}, `--nodes has "elsewhere"`},
		"none":                 {ready(), nil, "no node has an agent of namespace mesh"},
		"a faulty one":         {ready(a1, faulty), nil, "agents are not ready: node bad (faulty): ImagePullBackOff. Wait"},
		"a faulty one of all":  {ready(a1, faulty), []string{"all"}, "agents are not ready: node bad"},
		"a rollout":            {rolling, nil, "agents are not ready: DaemonSet set: 2 desired, 1 updated, 1 ready, 1 unavailable. Wait"},
		"one without an agent": {ready(a1, none), nil, "a1"},
		"as many reasons as it can say": {
			ready(faulty, faulty, faulty), nil,
			"node bad (faulty): ImagePullBackOff; node bad (faulty): ImagePullBackOff; node bad (faulty): ImagePullBackOff. Wait",
		},
		"more than it can say": {many, nil, "; node bad (faulty): ImagePullBackOff, and 2 more reasons. Wait"},
	} {
		nodes, err := choose(test.fleet, test.names)
		got := strings.Join(namesOf(nodes), " ")
		if err != nil && strings.Contains(err.Error(), test.want) {
			got = test.want
		}
		if got != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
	if notes := notesOn([]fleet.Node{a1, faulty}); !slices.Equal(notes, []string{"node bad (faulty): ImagePullBackOff; next: describe it"}) {
		t.Errorf("notes: %q", notes)
	}
}
