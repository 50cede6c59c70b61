// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// ExplanationForm is the version of Explanation's and Trace's form. New fields do not change it: readers
// ignore those that they do not know.
const ExplanationForm = 1

// Limits of an answer. A pod with NET_ADMIN can make a node say much, and kubectl reads
// MaxSize bytes.
const (
	MaxExplanation = 1 << 20
	MaxValue       = 1 << 10 // of an annotation
	MaxDoubts      = 32
)

// Explanation is what a node knows of one pod. Fields that are not known are empty.
type Explanation struct {
	Form      int    `json:"form"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Sandbox   string `json:"sandbox"` // its id

	Examined  bool   `json:"examined"`            // false: the record of its last ADD is all that is known
	NetNS     string `json:"netNS,omitempty"`     // path; empty for the node's own, or its runtime's
	NotMeshed string `json:"notMeshed,omitempty"` // why it is not in the mesh; nothing else is known then

	Annotations []PodAnnotation `json:"annotations,omitempty"` // those that decide on capture
	NowUnknown  string          `json:"nowUnknown,omitempty"`  // why the annotations of this moment are not known

	State   Code    `json:"state,omitempty"`
	Because string  `json:"because,omitempty"`
	Kernel  *Kernel `json:"kernel,omitempty"`

	KernelUnknown string `json:"kernelUnknown,omitempty"` // why Kernel is not known

	Add          *record.Record `json:"add,omitempty"`          // the last one
	AddOfEarlier bool           `json:"addOfEarlier,omitempty"` // it is of an earlier sandbox of the pod
	AddUnknown   string         `json:"addUnknown,omitempty"`   // why the last ADD is not known
}

// PodAnnotation is an annotation or a label of a pod, at its creation and now.
type PodAnnotation struct {
	Key     string `json:"key"`
	Created *Value `json:"created,omitempty"` // nil for none
	Now     *Value `json:"now,omitempty"`     // nil for none
}

// Value is the value of an annotation. Of one without a form only the presence is told: it
// may be a secret.
type Value struct {
	Text   string `json:"text,omitempty"`
	Hidden bool   `json:"hidden,omitempty"`
	Bytes  int    `json:"bytes,omitempty"` // of the whole, where Text was cut
}

// Kernel is what the pod's network namespace holds.
type Kernel struct {
	Backend  string `json:"backend,omitempty"`
	Stamp    string `json:"stamp,omitempty"`
	Expected string `json:"expected,omitempty"` // stamp of the desired rules
	Foreign  string `json:"foreign,omitempty"`  // chain of another plugin's capture
	Refused  uint64 `json:"refused,omitempty"`  // packets
}

// Errors of Decode.
var (
	ErrAnswer          = errors.New("reading the agent's answer")
	errExplanationForm = errors.New("it has form")
)

// DecodeAnswer reads what an agent of any version answers into an Explanation or a Trace. Errors: ErrAnswer
// and, for an answer of another form, ErrForm.
func DecodeAnswer(document []byte, into any) error {
	var head struct{ Form int }
	err := json.Unmarshal(document, &head)
	if err == nil && head.Form != ExplanationForm {
		err = fmt.Errorf("%w %d, expected %d", errExplanationForm, head.Form, ExplanationForm)
	}
	if err == nil {
		err = json.Unmarshal(document, into)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return nil
}
