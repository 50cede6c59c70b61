// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Code names one kind of finding. Codes are stable. Those that PodStates returns are also label values
// of metrics and parts of Leases, and most are reasons of records. The codes from InitContainer to
// NotInjected are the causes of exemptions.
type Code string

// Meaning explains a code, the causes of its findings, and the next step. Cause is empty if it would
// repeat Means or Advice.
type Meaning struct {
	Code                 Code
	Means, Cause, Advice string
}

// Codes returns the meanings of all codes, in the order of the documents.
func Codes() []Meaning { return slices.Concat(podCodes, nodeCodes, clusterCodes) }

var advices = func() map[Code]string {
	advices := map[Code]string{}
	for _, code := range Codes() {
		advices[code.Code] = code.Advice
	}
	return advices
}()

// Advice returns the code's general next step, or "" for an unknown code.
func (c Code) Advice() string { return advices[c] }

var severities = map[Code]Severity{
	Captured:      OK,
	Uncaptured:    Problem,
	Drifted:       Problem,
	Outdated:      Note,
	Changed:       Note,
	Foreign:       Note,
	Obstructed:    Problem,
	InjectedLater: Problem,
	Unknown:       NotKnown,
	Exempt:        Note,
	NotExamined:   Problem,
	NotStarted:    Problem,
	NotReported:   Note,
	Gone:          Waiting,
	NotInMesh:     Note,
	NotScheduled:  Waiting,
}

// Severity returns the severity of a pod's state, or "" for any other code.
func (c Code) Severity() Severity { return severities[c] }

// partCodes maps parts of the node to codes, for faults without a more exact code.
var partCodes = map[string]Code{
	"owner": NodeClaimed, "binary": PluginMissing, "credentials": CredentialsInvalid, "backend": BackendUnusable,
	"pods": LookupsUnanswered, "entry": EntryMissing, "runtime": EntryNotLoaded,
}

// CodeOfPart returns the code for a fault of a part of the node, or "" for an unknown part.
func CodeOfPart(part string) Code { return partCodes[part] }

var addCodes = map[capture.Reason]Code{
	capture.ReasonAnnotations: AddAnnotations, capture.ReasonRefused: AddRefused, capture.ReasonLookup: AddLookup,
	capture.ReasonConfiguration: AddConfiguration, capture.ReasonInput: AddInput, capture.ReasonKernel: AddKernel, capture.ReasonGone: AddGone,
}

// CodeOfAdd returns the code of an ADD that failed for this reason.
func CodeOfAdd(reason capture.Reason) Code { return cmp.Or(addCodes[reason], AddFailed) }
