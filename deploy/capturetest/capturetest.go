// SPDX-License-Identifier: Apache-2.0

// Package capturetest tests capture on a cluster: it creates two pods and a Service of the
// agent's own image, connects one pod to the other, and removes what it created.
package capturetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// Report is what a test found.
type Report struct {
	Image   string   `json:"image"`
	Client  string   `json:"clientNode"`
	Server  string   `json:"serverNode"`
	Results []Result `json:"results"`
	Archive string   `json:"report,omitempty"` // of the command report, if a check failed
	Notes   []string `json:"notes,omitempty"`
}

// Result is that of one check or, with an empty check, of all checks of a mode.
type Result struct {
	Mode    Mode    `json:"mode"`
	Family  string  `json:"family,omitempty"`
	Check   string  `json:"check,omitempty"`
	Verdict Verdict `json:"result"`
	Cause   string  `json:"cause,omitempty"`
	Next    string  `json:"nextStep,omitempty"`
}

// Verdict is the result of a check.
type Verdict string

const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"
	Skipped Verdict = "skipped"
)

// Mode is how inbound traffic is captured: a value of sidecar.istio.io/interceptionMode.
type Mode string

const (
	Redirect Mode = "REDIRECT"
	TProxy   Mode = "TPROXY"
)

// Has reports whether a check has a verdict.
func (r *Report) Has(verdict Verdict) bool {
	return slices.ContainsFunc(r.Results, func(result Result) bool { return result.Verdict == verdict })
}

// Test is a test with the flags of the command.
type Test struct {
	Client    *fleet.Client
	Fleet     *fleet.Fleet
	Explain   func(ctx context.Context, namespace, pod string) (*fleet.Explanation, error)
	Archive   func(ctx context.Context, nodes []string) (path string, err error) // packs a report
	Namespace string                                                             // that exists; empty: one for each mode
	Nodes     []string                                                           // of the client and the server; empty: the test chooses
	Image     string                                                             // empty: that of the agents
	Modes     []Mode
	Timeout   time.Duration // of one pod's start
	Poll      time.Duration // between two reads of one object
	Progress  func(format string, args ...any)
}

// cleanupTimeout limits the removal of what a mode created.
const cleanupTimeout = 2 * time.Minute

// longest is how long one mode may take: it waits for the server, and then for the client.
func (t *Test) longest() time.Duration { return 2*t.Timeout + cleanupTimeout }

// Run tests each mode. It removes what it created also when it fails and when ctx ends.
// Errors: the test could not run.
func (t *Test) Run(ctx context.Context) (*Report, error) {
	nodes, err := choose(t.Fleet, t.Nodes)
	if err != nil {
		return nil, err
	}
	settings, err := t.settings(ctx)
	if err != nil {
		return nil, err
	}
	image := t.Image
	if image == "" {
		if image, err = t.agentImage(ctx, nodes); err != nil {
			return nil, err
		}
	}
	report := &Report{Image: image, Client: nodes[0].Name, Server: nodes[1].Name, Notes: notesOn(nodes)}
	report.Notes = append(report.Notes, t.removeLeftovers(ctx)...)
	id := newID()
	until := time.Now().Add(time.Duration(len(t.Modes)) * t.longest())
	for _, mode := range t.Modes {
		r := run{Test: t, mode: mode, id: id, until: until, nodes: nodes, image: image, settings: settings, report: report}
		if err := r.do(ctx); err != nil {
			return report, fmt.Errorf("testing %s: %w", mode, err)
		}
	}
	return report, nil
}

// choose returns the nodes of client and server: the named ones, else two of those with an
// agent, the good ones first.
func choose(f *fleet.Fleet, names []string) ([]fleet.Node, error) {
	var nodes []fleet.Node
	for _, name := range names {
		i := slices.IndexFunc(f.Nodes, func(n fleet.Node) bool { return n.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("--node is %q, where neither an agent nor a pod of the mesh runs: expected a node of kubectl capture-cni status -o wide", name)
		}
		nodes = append(nodes, f.Nodes[i])
	}
	if len(nodes) == 0 {
		var bad []fleet.Node
		for _, node := range f.Nodes {
			switch {
			case node.Agent == "" || node.State == fleet.Removed:
			case node.State.Good():
				nodes = append(nodes, node)
			default:
				bad = append(bad, node)
			}
		}
		nodes = append(nodes, bad...)
	}
	switch len(nodes) {
	case 0:
		return nil, fmt.Errorf("no agent runs in namespace %s: see kubectl capture-cni status, or name a node by --node and an image by --image", f.Namespace)
	case 1:
		nodes = append(nodes, nodes[0])
	}
	return nodes[:2], nil
}

// notesOn returns what is known of nodes that need attention.
func notesOn(nodes []fleet.Node) (notes []string) {
	for i, node := range nodes {
		if !node.State.Good() && (i == 0 || node.Name != nodes[0].Name) {
			notes = append(notes, fmt.Sprintf("node %s is %s: %s; next: %s", node.Name, node.State, strings.Join(node.Reasons, "; "), cmp.Or(node.Next, "kubectl capture-cni status --wait")))
		}
	}
	return notes
}
