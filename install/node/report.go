// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"strings"
)

// Part is one thing that has to be right about a node.
type Part string

const (
	PartOwner       Part = "owner"
	PartBinary      Part = "binary"
	PartCredentials Part = "credentials"
	PartEntry       Part = "entry"
	PartRuntime     Part = "runtime"
)

// Parts are all of them, in the order in which they are brought about.
func Parts() []Part { return []Part{PartOwner, PartBinary, PartCredentials, PartEntry, PartRuntime} }

// Finding is what is wrong with a part.
type Finding struct {
	Part    Part   `json:"part"`
	Reason  string `json:"reason"`
	Waiting bool   `json:"waiting,omitempty"` // it passes by itself
}

// Report is how a node is. Without findings it is as it should be.
type Report struct {
	Mode     Mode      `json:"mode"`
	Findings []Finding `json:"findings"`
}

// Good tells that nothing is wrong.
func (r Report) Good() bool { return len(r.Findings) == 0 }

// Is tells whether one part is right.
func (r Report) Is(part Part) bool {
	for _, f := range r.Findings {
		if f.Part == part {
			return false
		}
	}
	return true
}

func (r *Report) add(part Part, err error) {
	if err != nil {
		r.Findings = append(r.Findings, Finding{part, err.Error(), isWaiting(err)})
	}
}

// String is one reason a line.
func (r Report) String() string {
	if r.Good() {
		return "the node is as it should be, in mode " + string(r.Mode)
	}
	lines := make([]string, len(r.Findings))
	for i, f := range r.Findings {
		lines[i] = fmt.Sprintf("%s: %s", f.Part, f.Reason)
	}
	return strings.Join(lines, "\n")
}
