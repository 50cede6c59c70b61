// SPDX-License-Identifier: Apache-2.0

// Package capturetest tests capture on a cluster. For each mode and pair of nodes, it creates two pods
// and a Service, connects one pod to the other, and removes the objects that it created.
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

// Report contains the results of a test.
type Report struct {
	Image   string   `json:"image"`
	Nodes   []string `json:"nodes"` // each was the node of a client and of a server
	Results []Result `json:"results"`
	Archive string   `json:"report,omitempty"` // path of a support archive, if a check failed
	Notes   []string `json:"notes,omitempty"`
}

// Result is the result of one check or, if Check is empty, of all checks of a mode.
type Result struct {
	Client, Server string // names of the nodes
	Mode           Mode
	Family, Check  string
	Finding        report.Finding
}

// MarshalJSON returns the result in the format that all releases share.
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

// Verdict says whether a check passed, failed, or was skipped.
type Verdict string

const (
	Passed  Verdict = "passed"
	Failed  Verdict = "failed"
	Skipped Verdict = "skipped"
)

// Mode says how inbound traffic is captured.
type Mode string

const (
	Redirect Mode = "REDIRECT"
	TProxy   Mode = "TPROXY"
)

// Count returns the number of checks with this verdict.
func (r *Report) Count(verdict Verdict) (count int) {
	for _, result := range r.Results {
		if result.Verdict() == verdict {
			count++
		}
	}
	return count
}

// Test contains the settings of the test, most of which are flags of the command, and its access to the
// cluster.
type Test struct {
	Client    *fleet.Client
	Fleet     *fleet.Fleet
	Explain   func(ctx context.Context, namespace, pod string) (*fleet.Explanation, error)
	Archive   func(ctx context.Context, nodes []string) (path string, err error) // packs a support archive
	Namespace string                                                             // an existing one; if empty, each mode and pair creates one
	Nodes     []string                                                           // or "all"; if empty, those of oneOfEachKind
	Image     string                                                             // if empty, the agents' image
	Modes     []Mode
	Timeout   time.Duration // for one pod: until the server runs, or the client has ended
	Poll      time.Duration // between two reads of one object
	Progress  func(format string, args ...any)
}

// cleanupTimeout limits the removal of the objects that the test of one mode created, and of those that
// earlier tests left.
const cleanupTimeout = 2 * time.Minute

// evidenceTime is the time that the agents may take for Explain, 30 s for each of two pods, and for
// Archive, 2 min for each of two containers.
const evidenceTime = 5 * time.Minute

// longest returns the time that the test of one mode may take to create four objects, to wait for the
// server and then for the client, to ask the agents, and to remove its objects.
func (t *Test) longest() time.Duration {
	return 4*requestTimeout + 2*t.Timeout + evidenceTime + cleanupTimeout
}

// Run tests each mode between pairs of nodes. It removes the objects that it created, even after an
// error or the end of ctx. It returns an error only if the test could not run to its end, or left
// objects, because failed checks are in the Report.
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
	image := cmp.Or(t.Image, installer.Image) // the nodes have the agents' image, so the pods rarely need a pull Secret
	report := &Report{Image: image, Notes: notesOn(nodes)}
	for _, node := range nodes {
		report.Nodes = append(report.Nodes, node.Name)
	}
	report.Notes = append(report.Notes, t.removeLeftovers(ctx)...)
	for i, client := range nodes {
		pair, id := []fleet.Node{client, nodes[(i+1)%len(nodes)]}, newID()
		for j, mode := range t.Modes {
			step := fmt.Sprintf("%d of %d, %s", i*len(t.Modes)+j+1, len(nodes)*len(t.Modes), mode)
			r := run{Test: t, mode: mode, step: step, id: id, nodes: pair, image: image, settings: settings, report: report}
			r.until = time.Now().Add(t.longest())
			if err := r.do(ctx); err != nil {
				return report, fmt.Errorf("testing %s: %w", mode, err)
			}
		}
	}
	return report, nil
}
