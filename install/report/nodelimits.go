// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
)

// MaxRules is the highest version number of a pod's rules that a node's state may contain.
const MaxRules = 9999

// Limits of a state.
const (
	maxPods     = 100
	maxKnown    = 1000
	maxCounts   = 32
	maxCount    = 10_000 // pods; far more than the 110 with which kubelets are tested
	maxFindings = 8
	maxNotes    = 4
	maxText     = 300 // bytes
)

// Forms of the fields of Pods: names as Kubernetes accepts them, the beginnings of UIDs, and the words
// for states and causes.
var (
	namespaceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	nameForm      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	uidForm       = regexp.MustCompile(`^[0-9a-f]{8}$`)
	wordForm      = regexp.MustCompile(`^[a-z_]{1,32}$`)
)

func isWord(text string) bool { return wordForm.MatchString(text) }

func (p NamedPod) isValid() bool {
	return namespaceForm.MatchString(p.Namespace) && nameForm.MatchString(p.Name) &&
		isWord(string(p.State)) && (p.Cause == "" || isWord(string(p.Cause))) && p.Rules >= 0 && p.Rules <= MaxRules
}

// texts returns the texts of a state that must have at most maxText bytes.
func (d *nodeDocument) texts() []*string {
	texts := []*string{&d.Version, (*string)(&d.Mode), &d.Backend, &d.Desired, &d.Warning.Reason, &d.Warning.Next, (*string)(&d.Warning.Code)}
	for i := range d.Faults {
		texts = append(texts, &d.Faults[i].Part, &d.Faults[i].Reason, (*string)(&d.Faults[i].Code))
	}
	for i := range d.Notes {
		texts = append(texts, &d.Notes[i])
	}
	for i := range d.Codes {
		texts = append(texts, (*string)(&d.Codes[i]))
	}
	return texts
}

// check returns an error for a state that no correct agent would write. Without this check, a compromised
// agent could falsify a cluster's totals, for example with negative numbers.
func (d *nodeDocument) check() error {
	if len(d.Faults) > maxFindings || max(len(d.Notes), len(d.Codes)) > maxNotes {
		return fmt.Errorf("%d findings, %d notes and %d codes of notes: expected at most %d, %d and %d",
			len(d.Faults), len(d.Notes), len(d.Codes), maxFindings, maxNotes, maxNotes)
	}
	for _, text := range d.texts() {
		if len(*text) > maxText {
			return fmt.Errorf("a text of %d bytes: expected at most %d", len(*text), maxText)
		}
	}
	if d.Pods != nil {
		return d.Pods.check()
	}
	return nil
}

func (p Pods) check() error {
	for what, length := range map[string][2]int{
		"states": {len(p.States), maxCounts}, "causes": {len(p.Exempt), maxCounts}, "updates": {len(p.Updates), maxCounts},
		"named pods": {len(p.Named), maxPods}, "known pods": {len(p.Known), maxKnown},
	} {
		if length[0] > length[1] {
			return fmt.Errorf("%d %s: expected at most %d", length[0], what, length[1])
		}
	}
	if err := cmp.Or(checkCounts(p.States), checkCounts(p.Exempt), checkCounts(p.Updates),
		checkCounts(map[string]int{"omitted": p.Omitted, "repaired": p.Repaired})); err != nil {
		return err
	}
	for _, pod := range p.Named {
		if !pod.isValid() {
			return fmt.Errorf("pod %.60q in namespace %.60q is %.40q by %.40q, with version %d of rules: "+
				"expected names as Kubernetes has them, words in lower case, and a version from 0 to %d",
				pod.Name, pod.Namespace, pod.State, pod.Cause, pod.Rules, MaxRules)
		}
	}
	if i := slices.IndexFunc(p.Known, func(uid string) bool { return !uidForm.MatchString(uid) }); i >= 0 {
		return fmt.Errorf("a known pod is %.40q: expected the first 8 digits of a UID", p.Known[i])
	}
	return nil
}

func checkCounts[K ~string](counts map[K]int) error {
	for word, count := range counts {
		if !isWord(string(word)) || count < 0 || count > maxCount {
			return fmt.Errorf("%d pods counted as %.40q: expected a word in lower case, and a number from 0 to %d", count, word, maxCount)
		}
	}
	return nil
}
