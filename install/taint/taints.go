// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// removal is a patch that takes all taints of a key out of a list and fails
// where that list has changed in between. It is nil where there are none.
func removal(taints []corev1.Taint, key string) ([]byte, error) {
	var patch []operation
	for i, taint := range slices.Backward(taints) {
		if taint.Key == key {
			at := fmt.Sprintf("/spec/taints/%d", i)
			patch = append(patch, operation{"test", at + "/key", key}, operation{"remove", at, ""})
		}
	}
	if patch == nil {
		return nil, nil
	}
	return json.Marshal(patch)
}

func has(taints []corev1.Taint, key string) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == key })
}
