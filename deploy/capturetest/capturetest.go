// SPDX-License-Identifier: Apache-2.0

// Package capturetest tests capture on a cluster: it creates two pods and a Service of the
// agent's own image, connects one pod to the other, and removes what it created.
package capturetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// Report is what a test found.
type Report struct {
	Image   string   `json:"image"`
	Nodes   []string `json:"nodes"` // each was that of a client and of a server
	Results []Result `json:"results"`
	Archive string   `json:"report,omitempty"` // of the command report, if a check failed
	Notes   []string `json:"notes,omitempty"`
}

// Result is that of one check or, with an empty check, of all checks of a mode.
type Result struct {
	Client, Server string // nodes
	Mode           Mode
	Family, Check  string
	Finding        report.Finding
}

// MarshalJSON returns the result in the form of all releases.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Client  string      `json:"clientNode"`
		Server  string      `json:"serverNode"`
		Mode    Mode        `json:"mode"`
		Family  string      `json:"family,omitempty"`
		Check   string      `json:"check,omitempty"`
		Verdict Verdict     `json:"result"`
		Cause   string      `json:"cause,omitempty"`
		Code    report.Code `json:"code,omitempty"`
		Next    string      `json:"nextStep,omitempty"`
	}{r.Client, r.Server, r.Mode, r.Family, r.Check, r.Verdict(), r.Finding.Reason, r.Finding.Code, r.Finding.Next})
}

// Verdict returns whether the check passed, failed or was not tried.
func (r Result) Verdict() Verdict {
	switch r.Finding.Severity {
	case report.OK:
		return Passed
	case report.NotKnown:
		return Skipped
	}
	return Failed
}

// Verdict is the result of a check.
type Verdict string

const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"
	Skipped Verdict = "skipped"
)

// Mode is how inbound traffic is captured.
type Mode string

const (
	Redirect Mode = "REDIRECT"
	TProxy   Mode = "TPROXY"
)

// Count returns how many checks have a verdict.
func (r *Report) Count(verdict Verdict) (count int) {
	for _, result := range r.Results {
		if result.Verdict() == verdict {
			count++
		}
	}
	return count
}

// Test is a test with the flags of the command.
type Test struct {
	Client    *fleet.Client
	Fleet     *fleet.Fleet
	Explain   func(ctx context.Context, namespace, pod string) (*fleet.Explanation, error)
	Archive   func(ctx context.Context, nodes []string) (path string, err error) // packs a report
	Namespace string                                                             // that exists; empty: one for each mode
	Nodes     []string                                                           // to test, or all; empty: one of each kind, and two at least
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

// Run tests each mode between pairs of nodes. It removes what it created also when it fails
// and when ctx ends. Errors: the test could not run.
func (t *Test) Run(ctx context.Context) (*Report, error) {
	nodes, err := choose(t.Fleet, t.Nodes)
	if err != nil {
		return nil, err
	}
	installer, err := t.installer(ctx, nodes)
	if err != nil {
		return nil, err
	}
	settings, err := settings(installer)
	if err != nil {
		return nil, err
	}
	image := cmp.Or(t.Image, installer.Image) // the nodes have it: no pull Secret is needed in another namespace
	report := &Report{Image: image, Notes: notesOn(nodes)}
	for _, node := range nodes {
		report.Nodes = append(report.Nodes, node.Name)
	}
	report.Notes = append(report.Notes, t.removeLeftovers(ctx)...)
	until := time.Now().Add(time.Duration(len(nodes)*len(t.Modes)) * t.longest())
	for i, client := range nodes {
		pair, id := []fleet.Node{client, nodes[(i+1)%len(nodes)]}, newID()
		for j, mode := range t.Modes {
			step := fmt.Sprintf("%d of %d, %s", i*len(t.Modes)+j+1, len(nodes)*len(t.Modes), mode)
			r := run{Test: t, mode: mode, step: step, id: id, until: until, nodes: pair, image: image, settings: settings, report: report}
			if err := r.do(ctx); err != nil {
				return report, fmt.Errorf("testing %s: %w", mode, err)
			}
		}
	}
	return report, nil
}
