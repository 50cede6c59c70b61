// SPDX-License-Identifier: Apache-2.0

package report

import "cmp"

// nodeFormat is the version of the node document's format. A new field does not change the version,
// because readers ignore unknown fields.
const nodeFormat = 1

// nodeDocument is a NodeState in the format that agents and kubectl plugins of all releases share.
type nodeDocument struct {
	Format  int    `json:"format"`
	Version string `json:"version"`
	Mode    Mode   `json:"mode"`
	Backend string `json:"backend,omitempty"`
	Desired string `json:"desired,omitempty"`
	Document
	Pods       *Pods `json:"pods,omitempty"`
	PodVersion int   `json:"podVersion,omitempty"`
}

// Document contains a node's findings in the format of the node's Lease and of verify's answer: faults
// by part, one warning, and notes.
type Document struct {
	Faults  []Fault  `json:"findings,omitzero"`
	Warning warning  `json:"warning,omitzero"`
	Notes   []string `json:"notes,omitempty"`
	Codes   []Code   `json:"noteCodes,omitempty"` // the notes' codes
}

// Fault says why a part of the node is not in the desired state.
type Fault struct {
	Part    string `json:"part"`
	Reason  string `json:"reason"`
	Waiting bool   `json:"waiting,omitempty"`
	Code    Code   `json:"code,omitempty"`
}

// String returns the fault as it appears in logs.
func (f Fault) String() string { return join(f.Part, f.Reason) }

type warning struct {
	Reason string `json:"reason"`
	Next   string `json:"nextStep"`
	Code   Code   `json:"code,omitempty"`
}

func newNodeDocument(s NodeState) nodeDocument {
	return nodeDocument{nodeFormat, s.Version, s.Mode, s.Backend, s.Desired, s.Findings.Document(), s.Pods, s.PodVersion}
}

// Document returns the findings in the format that all releases share.
func (f Findings) Document() (d Document) {
	for _, one := range f.Faults() {
		d.Faults = append(d.Faults, Fault{one.Subject, one.Advised(), one.Severity == Waiting, one.Code})
	}
	for _, one := range f.Of(Warning) {
		d.Warning = cmp.Or(d.Warning, warning{one.Reason, one.Next, one.Code})
	}
	for _, one := range f.Of(Note) {
		d.Notes, d.Codes = append(d.Notes, one.Advised()), append(d.Codes, one.Code)
	}
	return d
}

// findings returns the findings in a document. Agents of release 0.3 or earlier write no codes, so a
// fault without a code gets its part's code.
func (d Document) findings() (f Findings) {
	for _, fault := range d.Faults {
		f = append(f, Finding{
			Code: cmp.Or(fault.Code, CodeOfPart(fault.Part)), Severity: FaultSeverity(fault.Waiting), Subject: fault.Part, Reason: fault.Reason,
		})
	}
	if d.Warning.Reason != "" {
		f = append(f, Finding{Code: d.Warning.Code, Severity: Warning, Reason: d.Warning.Reason, Next: d.Warning.Next})
	}
	for i, note := range d.Notes {
		f = append(f, Finding{Code: append(d.Codes, make([]Code, len(d.Notes))...)[i], Severity: Note, Reason: note})
	}
	return f
}

func (d *Document) limit() {
	d.Faults = d.Faults[:min(len(d.Faults), maxFindings)]
	d.Notes, d.Codes = d.Notes[:min(len(d.Notes), maxNotes)], d.Codes[:min(len(d.Codes), maxNotes)]
}
