// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"
)

// waitForNodes waits until the nodes are ready, and until the default namespace
// has the service account that pods need.
func (c *Cluster) waitForNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conditions := [][]string{{"wait", "--for=create", "--timeout=" + Timeout.String(), "serviceaccount/default"}}
	for _, node := range c.Nodes { // a kubelet can be late to register its node
		conditions = append(conditions, []string{"wait", "--for=condition=Ready", "--timeout=" + Timeout.String(), "node/" + node.Name})
	}
	for _, condition := range conditions {
		if err := c.retryKubectl(ctx, condition); err != nil {
			return err
		}
	}
	return nil
}

// retryKubectl repeats a kubectl command until it succeeds.
func (c *Cluster) retryKubectl(ctx context.Context, args []string) error {
	for {
		_, err := c.Kubectl(ctx, "", args...)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cluster: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
