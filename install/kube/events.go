// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CreateEvent posts an Event.
func (c *Client) CreateEvent(ctx context.Context, event *corev1.Event) error {
	if err := do(ctx, c.rest.Post().Namespace(event.Namespace).Resource("events").Body(event.DeepCopy())).Error(); err != nil {
		return fmt.Errorf("posting an Event: %w", err)
	}
	return nil
}

// RecountEvent replaces count, time and message of an Event that was posted.
// Errors: those of the API server, "not found" for an Event that has expired.
func (c *Client) RecountEvent(ctx context.Context, event *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{"count": event.Count, "lastTimestamp": event.LastTimestamp, "message": event.Message})
	if err == nil {
		err = do(ctx, c.rest.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).Body(patch)).Error()
	}
	if err != nil {
		return fmt.Errorf("updating an Event: %w", err)
	}
	return nil
}
