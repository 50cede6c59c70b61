// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Lease returns a Lease. Errors: those of the API server.
func (c *Client) Lease(ctx context.Context, namespace, name string) (*coordination.Lease, error) {
	lease, err := c.lease(ctx, c.rest.Get(), nil, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("reading Lease %s/%s: %w", namespace, name, err)
	}
	return lease, nil
}

// CreateLease creates a Lease, and returns it as the API server stored it.
func (c *Client) CreateLease(ctx context.Context, lease *coordination.Lease) (*coordination.Lease, error) {
	created, err := c.lease(ctx, c.rest.Post(), lease, lease.Namespace)
	if err != nil {
		return nil, fmt.Errorf("creating Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return created, nil
}

// UpdateLease replaces a Lease of the same resource version, and returns it as the API
// server stored it. Errors: "conflict" where the version is another one.
func (c *Client) UpdateLease(ctx context.Context, lease *coordination.Lease) (*coordination.Lease, error) {
	updated, err := c.lease(ctx, c.rest.Put(), lease, lease.Namespace, lease.Name)
	if err != nil {
		return nil, fmt.Errorf("updating Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return updated, nil
}

// leasesPath is followed by a namespace.
const leasesPath = "/apis/coordination.k8s.io/v1/namespaces"

func (c *Client) lease(ctx context.Context, request *rest.Request, body *coordination.Lease, namespace string, name ...string) (*coordination.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request.AbsPath(append([]string{leasesPath, namespace, "leases"}, name...)...)
	if body != nil {
		body = body.DeepCopy()
		body.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: coordination.SchemeGroupVersion.String()}
		request.Body(body)
	}
	answer := &coordination.Lease{}
	// The next write is a few seconds away: it takes the place of a retry.
	if err := request.MaxRetries(0).Do(ctx).Into(answer); err != nil {
		return nil, err
	}
	return answer, nil
}
