// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"strings"
)

// Finding describes a fault, or a result without a fault, of its subject: a part of a node, a pod, a
// node or a cluster. The keys of its JSON are those of precheck's answers.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"level"`
	Subject  string   `json:"subject"`
	Reason   string   `json:"text"` // the fault or the result
	Next     string   `json:"nextStep,omitempty"`
}

// Severity says how much a finding matters.
type Severity string

const (
	OK       Severity = "ok"
	Note     Severity = "note"    // the subject works, with a limitation
	Waiting  Severity = "waiting" // the subject will work without the operator's help
	Warning  Severity = "warning" // the subject works, but the operator must act
	Problem  Severity = "problem" // the subject does not work
	NotKnown Severity = "unknown" // the subject's state could not be determined
)

// FaultSeverity returns the severity of a fault: Waiting if waits is true, because such a fault
// resolves without the operator, and otherwise Problem.
func FaultSeverity(waits bool) Severity {
	return map[bool]Severity{true: Waiting, false: Problem}[waits]
}

// join joins all texts except empty ones, with a colon between two of them.
func join(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), ": ")
}

// Summary returns the subject and the reason.
func (f Finding) Summary() string { return join(f.Subject, f.Reason) }

// Advised returns the reason and the next step.
func (f Finding) Advised() string { return join(f.Reason, f.Next) }

// prefixes begin the lines of findings that do not prevent a node from working.
var prefixes = map[Severity]string{Note: "note", Warning: "warning"}

// String returns the finding in one line, without its code.
func (f Finding) String() string {
	return WithURLs(join(prefixes[f.Severity], f.Subject, f.Reason, f.Next))
}

// Coded returns the finding in one line that ends with its code.
func (f Finding) Coded() string { return f.Code.Mark(f.String()) }

// Mark returns a text that ends with the code. If the code is empty, as in findings of some releases,
// Mark returns the text unchanged.
func (c Code) Mark(text string) string { return strings.TrimSuffix(text+" ["+string(c)+"]", " []") }

// CutCode separates a text from the code at its end. If the text has no known code, as in some releases,
// CutCode returns the argument otherwise and the whole text.
func CutCode(text string, otherwise Code) (Code, string) {
	at := max(strings.LastIndex(text, " ["), 0)
	if code := Code(strings.Trim(text[at:], " []")); code.Advice() != "" {
		return code, text[:at]
	}
	return otherwise, text
}

// Findings are the findings about one node, or of one check.
type Findings []Finding

// String returns a line for each finding, with its code, or "no problems found".
func (f Findings) String() string {
	return cmp.Or(strings.Join(f.Each(Finding.Coded), "\n"), "no problems found")
}

// Summary returns the subjects, reasons and codes in one line.
func (f Findings) Summary() string {
	return strings.Join(f.Each(func(one Finding) string { return one.Code.Mark(one.Summary()) }), "; ")
}

// Of returns the findings with these severities.
func (f Findings) Of(severities ...Severity) Findings {
	return slices.DeleteFunc(slices.Clone(f), func(one Finding) bool { return !slices.Contains(severities, one.Severity) })
}

// Faults returns the findings because of which a node is not in the desired state.
func (f Findings) Faults() Findings { return f.Of(Problem, Waiting) }

// Next returns the next step of the first finding that has one, or "".
func (f Findings) Next() string {
	return cmp.Or(f.Each(func(one Finding) string { return one.Next })...)
}

// Each returns the results of text for all findings.
func (f Findings) Each(text func(Finding) string) (texts []string) {
	for _, one := range f {
		texts = append(texts, text(one))
	}
	return texts
}
