// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Node returns a Node: with version "0" from the API server's cache, with "" the newest.
func (c *Client) Node(ctx context.Context, name, version string) (*corev1.Node, error) {
	request := c.rest.Get().Resource("nodes").Name(name)
	if version != "" {
		request.Param("resourceVersion", version)
	}
	node := &corev1.Node{}
	if err := do(ctx, request).Into(node); err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return node, nil
}

// taintAttempts bounds how often the taints may change between read and patch.
const taintAttempts = 5

// RemoveTaint removes all taints with a key from a Node as it was read, and keeps
// the others. Where they have changed meanwhile, it reads the Node again.
func (c *Client) RemoveTaint(ctx context.Context, node *corev1.Node, key string) error {
	for attempt := 1; ; attempt++ {
		patch, err := taintPatch(node.Spec.Taints, key)
		if patch == nil || err != nil {
			return err
		}
		err = do(ctx, c.rest.Patch(types.JSONPatchType).Resource("nodes").Name(node.Name).Body(patch)).Error()
		if err == nil {
			return nil
		}
		// A patch whose test fails is an invalid one.
		if attempt == taintAttempts || !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("removing taint %s from node %s: %w", key, node.Name, err)
		}
		if node, err = c.Node(ctx, node.Name, ""); err != nil {
			return err
		}
	}
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// taintPatch returns a patch that removes all taints with a key, and that fails
// where the list has changed meanwhile; nil where the list has none.
func taintPatch(taints []corev1.Taint, key string) ([]byte, error) {
	var patch []operation
	for i, taint := range slices.Backward(taints) {
		if taint.Key == key {
			path := fmt.Sprintf("/spec/taints/%d", i)
			patch = append(patch, operation{"test", path + "/key", key}, operation{"remove", path, ""})
		}
	}
	if patch == nil {
		return nil, nil
	}
	return json.Marshal(patch)
}
