// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// Fault describes an annotation that is invalid, unknown, absent or without effect.
type Fault struct {
	Key     string
	Value   string
	Problem string // usually ends with the expected form

	noValue bool // the message does not repeat the value
}

// BadInput is the error that contains all faults of one pod's annotations, but of many similar faults
// only the first ones.
type BadInput []Fault

func (faults BadInput) Error() string {
	lines := make([]string, len(faults))
	for i, f := range faults {
		problem := strings.ReplaceAll(f.Problem, "\n", "; ")
		if !f.noValue {
			problem = config.Quoted(f.Value) + ": " + problem
		}
		lines[i] = fmt.Sprintf("annotation %s: %s", f.Key, problem)
	}
	return strings.Join(lines, "\n")
}

// Refusal is the error for a pod that must not start, for example because the pod or one of its
// containers would run uncaptured.
type Refusal string

func (r Refusal) Error() string { return string(r) }
