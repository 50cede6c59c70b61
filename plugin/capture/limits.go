// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strings"
)

// Limits on what a pod's author writes: the memory and time that plugin and guard
// need for rules, dumps and messages grow with it.
const (
	// maxAnnotation is Kubernetes' limit for all annotations of a pod together.
	maxAnnotation = 256 << 10

	// maxElements limits all lists of a pod together.
	maxElements = 20_000
)

// withinLimits reports whether a list may be parsed. If not, it adds a fault.
func (d *decider) withinLimits(key, text string) bool {
	if len(text) > maxAnnotation {
		d.faults = append(d.faults, Fault{key, text, fmt.Sprintf("%d bytes: expected at most %d", len(text), maxAnnotation)})
		return false
	}
	d.elements += strings.Count(text, ",") + 1
	if d.elements > maxElements {
		d.faults = append(d.faults, Fault{key, text, fmt.Sprintf("expected at most %d elements in all lists of a pod together, got %d", maxElements, d.elements)})
		return false
	}
	return true
}
