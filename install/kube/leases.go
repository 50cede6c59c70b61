// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
)

// Lease reads a Lease. Errors: those of the API server.
func (c *Client) Lease(ctx context.Context, namespace, name string) (*coordination.Lease, error) {
	return lease(ctx, "reading", c.rest.Get(), namespace, name, nil, name)
}

// CreateLease creates a Lease, and returns it as the API server stored it.
func (c *Client) CreateLease(ctx context.Context, made *coordination.Lease) (*coordination.Lease, error) {
	return lease(ctx, "creating", c.rest.Post(), made.Namespace, made.Name, made)
}

// UpdateLease replaces a Lease, and returns it as the API server stored it. Errors: those of the API
// server, such as "conflict" if the Lease has another resource version.
func (c *Client) UpdateLease(ctx context.Context, changed *coordination.Lease) (*coordination.Lease, error) {
	return lease(ctx, "updating", c.rest.Put(), changed.Namespace, changed.Name, changed, changed.Name)
}

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces"

func lease(
	ctx context.Context, doing string, request *rest.Request, namespace, name string, body *coordination.Lease, path ...string,
) (*coordination.Lease, error) {
	request.AbsPath(append([]string{leasesPath, namespace, "leases"}, path...)...)
	if body != nil {
		request.Body(body)
	}
	answer := &coordination.Lease{}
	// The client does not retry, because the LeaseWriter retries with a back-off of its own.
	if err := do(ctx, request.MaxRetries(0)).Into(answer); err != nil {
		return nil, fmt.Errorf("%s Lease %s/%s: %w", doing, namespace, name, err)
	}
	return answer, nil
}
