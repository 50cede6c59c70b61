// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"strings"
)

// Finding says what is wrong with its subject, or that nothing is: a part of a node, a pod, a
// node or a cluster. The keys of its JSON are those of precheck.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"level"`
	Subject  string   `json:"subject"`
	Reason   string   `json:"text"` // what is wrong
	Next     string   `json:"nextStep,omitempty"`
}

// Severity is how much a finding matters.
type Severity string

const (
	OK       Severity = "ok"
	Note     Severity = "note"    // it works, with a limit
	Waiting  Severity = "waiting" // it resolves without the operator
	Warning  Severity = "warning" // the node is in the desired state, and needs the operator
	Problem  Severity = "problem" // it does not work
	NotKnown Severity = "unknown" // it could not be found out
)

// FaultSeverity returns the severity of a fault. A fault that waits resolves without the operator.
func FaultSeverity(waits bool) Severity {
	return map[bool]Severity{true: Waiting, false: Problem}[waits]
}

// join joins the texts that are not empty.
func join(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), ": ")
}

// Summary returns the subject and what is wrong with it.
func (f Finding) Summary() string { return join(f.Subject, f.Reason) }

// Advised returns what is wrong and what to do, without the subject.
func (f Finding) Advised() string { return join(f.Reason, f.Next) }

// prefixes begin the lines of findings that do not keep a node from working.
var prefixes = map[Severity]string{Note: "note", Warning: "warning"}

// String returns the finding in one line, without its code.
func (f Finding) String() string {
	return WithURLs(join(prefixes[f.Severity], f.Subject, f.Reason, f.Next))
}

// Coded returns the finding in one line that ends with its code.
func (f Finding) Coded() string { return f.Code.Mark(f.String()) }

// Mark returns a text that ends with the code, if there is one: another release may write findings
// without it.
func (c Code) Mark(text string) string { return strings.TrimSuffix(text+" ["+string(c)+"]", " []") }

// CutCode returns a text without the code that it ends with, and the code: otherwise for a text of
// another release, which may have none.
func CutCode(text string, otherwise Code) (Code, string) {
	at := max(strings.LastIndex(text, " ["), 0)
	if code := Code(strings.Trim(text[at:], " []")); code.Advice() != "" {
		return code, text[:at]
	}
	return otherwise, text
}

// Findings are those of one node or of one check.
type Findings []Finding

// String returns one finding a line, with its code.
func (f Findings) String() string {
	return cmp.Or(strings.Join(f.Each(Finding.Coded), "\n"), "no problems found")
}

// Summary returns what is wrong in one line.
func (f Findings) Summary() string {
	return strings.Join(f.Each(func(one Finding) string { return one.Code.Mark(one.Summary()) }), "; ")
}

// Of returns the findings of some severities.
func (f Findings) Of(severities ...Severity) Findings {
	return slices.DeleteFunc(slices.Clone(f), func(one Finding) bool { return !slices.Contains(severities, one.Severity) })
}

// Faults returns why a node is not in the desired state.
func (f Findings) Faults() Findings { return f.Of(Problem, Waiting) }

// Next returns the first next step, "" for none.
func (f Findings) Next() string {
	return cmp.Or(f.Each(func(one Finding) string { return one.Next })...)
}

// Each returns a text for each finding.
func (f Findings) Each(text func(Finding) string) (texts []string) {
	for _, one := range f {
		texts = append(texts, text(one))
	}
	return texts
}
