// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// Fault is one value that a pod got wrong.
type Fault struct {
	Key   string // the annotation
	Value string // as written
	Why   string // what is wrong, and the form expected
}

// BadInput is every fault of one pod's annotations at once.
type BadInput []Fault

func (faults BadInput) Error() string {
	lines := make([]string, len(faults))
	for i, f := range faults {
		why := strings.ReplaceAll(f.Why, "\n", "; ")
		lines[i] = fmt.Sprintf("annotation %s: %s: %s", f.Key, config.Quoted(f.Value), why)
	}
	return strings.Join(lines, "\n")
}

// Refusal is the reason why a meshed pod must not start as it is: it would
// run uncaptured, or something else in it would.
type Refusal string

func (r Refusal) Error() string { return string(r) }
