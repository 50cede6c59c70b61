// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"regexp"
	"strings"
)

// Limits of a state.
const (
	maxPods     = 100
	maxKnown    = 1000
	maxCounts   = 32
	maxCount    = 10_000 // pods: kubelets are tested with 110 on a node
	maxFindings = 8
	maxText     = 300 // bytes
)

// Forms of what a pod's entry holds: names as Kubernetes accepts them, and the words
// for states and causes.
var (
	namespaceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	nameForm      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	uidForm       = regexp.MustCompile(`^[0-9a-f]{8}$`)
	wordForm      = regexp.MustCompile(`^[a-z_]{1,32}$`)
)

func isWord(text string) bool { return wordForm.MatchString(text) }

func (p Pod) isValid() bool {
	return namespaceForm.MatchString(p.Namespace) && nameForm.MatchString(p.Name) && isWord(string(p.State)) && (p.Cause == "" || isWord(string(p.Cause)))
}

func limitFindings(findings []Finding) (limited []Finding) {
	for _, f := range findings[:min(len(findings), maxFindings)] {
		limited = append(limited, Finding{cut(f.Part), cut(f.Reason), f.Waiting})
	}
	return limited
}

// cut returns a text of at most maxText bytes.
func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText-len("…")], "") + "…"
}
