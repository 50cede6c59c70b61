// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
)

// Part is one part of a node's desired state.
type Part = report.Part

const (
	PartOwner       Part = "owner"
	PartBinary      Part = "binary"
	PartCredentials Part = "credentials"
	PartBackend     Part = "backend"
	PartPods        Part = "pods" // the agent answers requests of them
	PartEntry       Part = "entry"
	PartRuntime     Part = "runtime"
)

// parts returns all parts, in the order of their installation.
func parts() []Part {
	return []Part{PartOwner, PartBinary, PartCredentials, PartBackend, PartPods, PartEntry, PartRuntime}
}

// Finding is why a part is not in the desired state.
type Finding = report.Finding

// Report is the state of a node. Without findings it is in the desired state.
type Report struct {
	Mode     report.Mode    `json:"mode"`
	Findings []Finding      `json:"findings"`
	Warning  report.Warning `json:"warning,omitzero"`
	Notes    []string       `json:"notes,omitempty"` // what the operator should know of a node without findings, too
}

// Good reports whether the node is in the desired state.
func (r Report) Good() bool { return len(r.Findings) == 0 }

// IsGood reports whether a part is in the desired state.
func (r Report) IsGood(part Part) bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Part == part })
}

func (r *Report) Add(part Part, err error) {
	if err != nil {
		r.Findings = append(r.Findings, Finding{Part: part, Reason: err.Error(), Waiting: conflist.IsWaiting(err)})
	}
}

// Explain replaces the findings of a part by those of an earlier report, if both have any.
func (r *Report) Explain(part Part, earlier Report) {
	if r.IsGood(part) || earlier.IsGood(part) {
		return
	}
	isOfPart := func(f Finding) bool { return f.Part == part }
	r.Findings = slices.DeleteFunc(r.Findings, isOfPart)
	for _, f := range earlier.Findings {
		if isOfPart(f) {
			r.Findings = append(r.Findings, f)
		}
	}
}

// String returns one finding a line.
func (r Report) String() string {
	var lines []string
	if r.Good() {
		lines = append(lines, "the node is in the desired state, in mode "+string(r.Mode))
	}
	for _, f := range r.Findings {
		lines = append(lines, f.String())
	}
	if r.Warning.Reason != "" {
		lines = append(lines, "warning: "+r.Warning.Reason+": "+r.Warning.Next)
	}
	for _, note := range r.Notes {
		lines = append(lines, "note: "+note)
	}
	return strings.Join(lines, "\n")
}
