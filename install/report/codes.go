// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Code names one kind of finding. Codes are stable. Those of pods' states are also label values
// of metrics, reasons of records and parts of Leases; those of exempt pods are the causes.
type Code string

// Meaning is what a code says, what causes such findings, and what to do next.
type Meaning struct {
	Code                 Code
	Means, Cause, Advice string
}

// Codes returns the meanings of all codes, in the order of the documents.
func Codes() []Meaning { return slices.Concat(podCodes, nodeCodes, clusterCodes) }

// advices are the next steps by code.
var advices = func() map[Code]string {
	advices := map[Code]string{}
	for _, code := range Codes() {
		advices[code.Code] = code.Advice
	}
	return advices
}()

// Advice returns the next step that follows from the code only, "" for a code that is not known.
func (c Code) Advice() string { return advices[c] }

// severities are those of pods' states.
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

// Severity returns the severity of a pod's state. Any other code has none of its own.
func (c Code) Severity() Severity { return severities[c] }

// partCodes are the codes of faults that only pass through a part of the node.
var partCodes = map[string]Code{
	"owner": NodeClaimed, "binary": PluginMissing, "credentials": CredentialsInvalid, "backend": BackendUnusable,
	"pods": LookupsUnanswered, "entry": EntryMissing, "runtime": EntryNotLoaded,
}

// CodeOfPart returns the code of a fault of a part of the node, "" for a part that is not known.
func CodeOfPart(part string) Code { return partCodes[part] }

// addCodes are the codes of ADDs that failed.
var addCodes = map[capture.Reason]Code{
	capture.ReasonAnnotations: AddAnnotations, capture.ReasonRefused: AddRefused, capture.ReasonLookup: AddLookup,
	capture.ReasonConfiguration: AddConfiguration, capture.ReasonInput: AddInput, capture.ReasonKernel: AddKernel, capture.ReasonGone: AddGone,
}

// CodeOfAdd returns the code of an ADD that failed for a reason.
func CodeOfAdd(reason capture.Reason) Code { return cmp.Or(addCodes[reason], AddFailed) }
