// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/capture-cni/capture-cni/install/trace"
)

// Trace says which rule decides about a pod's packet, and why that is uncertain.
type Trace struct {
	Form      int    `json:"form"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`

	NotMeshed string `json:"notMeshed,omitempty"` // why the pod is not in the mesh

	NotCaptured string `json:"notCaptured,omitempty"` // why the pod of the mesh is not captured

	Doubts      []string    `json:"doubts,omitempty"`      // why other rules may decide
	Path        *trace.Path `json:"path,omitempty"`        // through the desired rules; nil if the pod is not captured, or the path is unknown
	Assumptions []string    `json:"assumptions,omitempty"` // assumptions of this trace, in addition to those of every path
}

// Text returns the trace, with a line for each fact.
func (t Trace) Text() string {
	var f facts
	f.add("pod", "%s/%s, UID %s", t.Namespace, t.Name, t.UID)
	switch {
	case t.NotMeshed != "":
		f.add("in the mesh", "no: %s", t.NotMeshed)
	case t.NotCaptured != "":
		f.add("verdict", "passes: the pod is not captured")
		f.add("because", "%s", t.NotCaptured)
	}
	for _, doubt := range t.Doubts {
		f.add("can't tell", "%s", doubt)
	}
	if t.Path == nil {
		return f.String()
	}
	if len(t.Doubts) > 0 {
		f.add("otherwise", "leaving that aside, the pod's own rules decide as follows")
	}
	return f.String() + t.Path.Text(t.Assumptions...)
}
