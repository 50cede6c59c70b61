// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"
)

// waitForNodes waits until pods can be created: the nodes are ready, and the
// default namespace has its service account.
func (c *Cluster) waitForNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for _, condition := range [][]string{
		{"wait", "--for=create", "--timeout=" + Patience.String(), "serviceaccount/default"},
		{"wait", "--for=condition=Ready", "--timeout=" + Patience.String(), "node", "--all"},
	} {
		if err := c.until(ctx, condition); err != nil {
			return err
		}
	}
	return nil
}

// until repeats a kubectl command until it succeeds.
func (c *Cluster) until(ctx context.Context, args []string) error {
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
