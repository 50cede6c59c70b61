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

// Node returns a Node. The version "0" permits an answer from the API server's cache, and the version
// "" requires one from etcd.
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

const taintAttempts = 5

// RemoveTaint removes all taints with this key from a Node, and keeps the other taints. If the API
// server rejects the change because the taints differ from those in node, RemoveTaint reads the Node
// again and retries.
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
		// The API server rejects a patch as invalid if the patch's test fails.
		if attempt == taintAttempts || !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("removing taint %s from node %s: %w", key, node.Name, err)
		}
		if node, err = c.Node(ctx, node.Name, ""); err != nil {
			return err
		}
	}
}

// operation is an operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value,omitempty"`
}

// taintPatch returns a patch that removes all taints with this key, or nil if the list has no such
// taint. The API server rejects the patch if one of these taints is no longer at its index.
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
