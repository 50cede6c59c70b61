// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// ExplanationForm is the version of the format of Explanation, Trace and NodeTraffic. A new field does
// not change the version, because readers ignore unknown fields.
const ExplanationForm = 1

// Limits of an answer. They are necessary because a pod with NET_ADMIN can cause long answers, and
// because kubectl capture-cni reads only MaxExplanation bytes.
const (
	MaxExplanation = 1 << 20
	MaxValue       = 1 << 10 // bytes of an annotation's value
	MaxDoubts      = 32
)

// Explanation contains everything that a node knows about one pod. A field is empty if the node does
// not know it.
type Explanation struct {
	Form      int    `json:"form"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Sandbox   string `json:"sandbox"` // the sandbox's id

	Examined  bool   `json:"examined"`            // if false, only the record of the pod's last ADD is known
	NetNS     string `json:"netNS,omitempty"`     // path; empty if unknown, or if the pod uses the node's network or the runtime's own
	NotMeshed string `json:"notMeshed,omitempty"` // why the pod is not in the mesh; then no field below is set

	Annotations []PodAnnotation `json:"annotations,omitempty"` // those that decide about capture
	NowUnknown  string          `json:"nowUnknown,omitempty"`  // why the current annotations are unknown; each Now is then as Created

	State   Code    `json:"state,omitempty"`
	Because string  `json:"because,omitempty"`
	Kernel  *Kernel `json:"kernel,omitempty"`

	KernelUnknown string `json:"kernelUnknown,omitempty"` // why Kernel is unknown

	Add          *record.Record `json:"add,omitempty"`          // the last ADD
	AddOfEarlier bool           `json:"addOfEarlier,omitempty"` // Add belongs to an earlier sandbox of the pod
	AddUnknown   string         `json:"addUnknown,omitempty"`   // why the last ADD is unknown
}

// PodAnnotation is a pod's annotation or label, at the pod's creation and now.
type PodAnnotation struct {
	Key     string `json:"key"`
	Created *Value `json:"created,omitempty"` // nil if it did not exist
	Now     *Value `json:"now,omitempty"`     // nil if it does not exist
}

// Value is the value of an annotation. If the annotation has no documented form, its value could be a
// secret, so the Value says only that the annotation exists.
type Value struct {
	Text   string `json:"text,omitempty"`
	Hidden bool   `json:"hidden,omitempty"`
	Bytes  int    `json:"bytes,omitempty"` // of the whole value, if Text is cut
}

// Kernel describes the rules in the pod's network namespace.
type Kernel struct {
	Backend  string `json:"backend,omitempty"`
	Stamp    string `json:"stamp,omitempty"`
	Expected string `json:"expected,omitempty"` // stamp of the desired rules
	Foreign  string `json:"foreign,omitempty"`  // a chain of another plugin's capture rules
	Refused  uint64 `json:"refused,omitempty"`  // packets
}

// Errors of DecodeAnswer.
var (
	ErrAnswer          = errors.New("reading the agent's answer")
	errExplanationForm = errors.New("it has form")
)

// DecodeAnswer decodes an agent's answer into an Explanation, a Trace or a NodeTraffic. Errors:
// ErrAnswer, also for an answer in another version of the format.
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
