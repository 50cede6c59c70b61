// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
)

// Parts of a node's desired state, in the order of their installation. They are subjects of findings,
// and label values of metrics.
const (
	PartOwner       = "owner"
	PartBinary      = "binary"
	PartCredentials = "credentials"
	PartBackend     = "backend"
	PartPods        = "pods" // the agent answers requests for pods
	PartEntry       = "entry"
	PartRuntime     = "runtime"
)

func parts() []string {
	return []string{PartOwner, PartBinary, PartCredentials, PartBackend, PartPods, PartEntry, PartRuntime}
}

// Report is the state of a node. If it contains no faults, the node is in the desired state.
type Report struct {
	Mode     report.Mode
	Findings report.Findings
}

// Good reports whether the node is in the desired state.
func (r Report) Good() bool { return len(r.Findings.Faults()) == 0 }

// IsGood reports whether a part is in the desired state.
func (r Report) IsGood(part string) bool { return !slices.ContainsFunc(r.Findings, isFaultOf(part)) }

func isFaultOf(part string) func(report.Finding) bool {
	return func(f report.Finding) bool { return f.Subject == part }
}

// Add adds an error as a fault of a part. The error can be nil.
func (r *Report) Add(part string, err error) {
	if err != nil {
		r.Findings = append(r.Findings, report.Finding{
			Code: report.CodeOfPart(part), Severity: report.FaultSeverity(conflist.IsWaiting(err)), Subject: part, Reason: err.Error(),
		})
	}
}

// Explain replaces the faults of a part with those in an earlier report, if both reports have any.
func (r *Report) Explain(part string, earlier Report) {
	faults := slices.DeleteFunc(slices.Clone(earlier.Findings), func(f report.Finding) bool { return !isFaultOf(part)(f) })
	if !r.IsGood(part) && len(faults) > 0 {
		r.Findings = append(slices.DeleteFunc(r.Findings, isFaultOf(part)), faults...)
	}
}

// String returns a line for each finding, with its code: faults, then warnings, then notes. If there are
// no faults, the first line says that the node is in the desired state.
func (r Report) String() string {
	var lines []string
	if r.Good() {
		lines = append(lines, "the node is in the desired state, in mode "+string(r.Mode))
	}
	for _, found := range []report.Findings{r.Findings.Faults(), r.Findings.Of(report.Warning), r.Findings.Of(report.Note)} {
		lines = append(lines, found.Each(report.Finding.Coded)...)
	}
	return strings.Join(lines, "\n")
}

// MarshalJSON returns the report in the format of verify's output, which is the same in all releases.
func (r Report) MarshalJSON() ([]byte, error) {
	document := r.Findings.Document()
	document.Faults = append([]report.Fault{}, document.Faults...)
	return json.Marshal(struct {
		Mode report.Mode `json:"mode"`
		report.Document
	}{r.Mode, document})
}
