// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strings"
)

// Limits on what a pod's author writes. Rules, dumps of them and messages grow
// with it, in the plugin and in the guard.
const (
	// maxAnnotation is what Kubernetes allows for all annotations of a pod together.
	maxAnnotation = 256 << 10

	// maxElements is for all lists of a pod together.
	maxElements = 20_000
)

// withinLimits looks at a list's length before the list is read. A list beyond
// the limits is a fault.
func (d *decider) withinLimits(key, text string) bool {
	if len(text) > maxAnnotation {
		d.faults = append(d.faults, Fault{key, text, fmt.Sprintf("%d bytes: expected at most %d", len(text), maxAnnotation)})
		return false
	}
	d.elements += strings.Count(text, ",") + 1
	if d.elements > maxElements {
		d.faults = append(d.faults, Fault{key, text, fmt.Sprintf("expected at most %d elements in all lists of a pod together, and these make %d", maxElements, d.elements)})
		return false
	}
	return true
}
