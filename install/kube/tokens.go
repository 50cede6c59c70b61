// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// TokenSpec describes the token to request for a service account.
type TokenSpec struct {
	Namespace, ServiceAccount string
	Node                      string // the Node to bind the token to, or ""
	NodeExisted               bool   // a valid token is bound to the Node, so a missing Node was deleted
	TTL                       time.Duration
}

// RequestToken returns a new token of a service account. It binds the token to spec.Node, unless that
// is empty, so that deleting the Node revokes the token. If the API server can't bind tokens to Nodes,
// or lacks the Node, RequestToken requests an unbound token, which the chart's policy can refuse. With
// NodeExisted, it requests none for a missing Node. It does not bind tokens to the agent's pod, because
// then each rollout would revoke them.
func (c *Client) RequestToken(ctx context.Context, spec TokenSpec) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	token, err := c.requestToken(ctx, spec, spec.Node)
	if spec.Node != "" && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || isUnknownNode(err) && !spec.NodeExisted) {
		unbound, refusal := c.requestToken(ctx, spec, "") // for an API server before 1.31, or a node's first boot
		if refusal == nil {
			return unbound, nil
		}
		err = fmt.Errorf("%w; and a token that is bound to no Node: %w", err, refusal)
	}
	if err != nil {
		return "", fmt.Errorf("requesting a token for service account %s/%s: %w", spec.Namespace, spec.ServiceAccount, err)
	}
	return token, nil
}

func isUnknownNode(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "nodes"
}

func (c *Client) requestToken(ctx context.Context, spec TokenSpec, node string) (string, error) {
	seconds := int64(spec.TTL / time.Second)
	request := &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{ExpirationSeconds: &seconds},
	}
	if node != "" {
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node}
	}
	answer := &authentication.TokenRequest{}
	err := c.rest.Post().Namespace(spec.Namespace).Resource("serviceaccounts").Name(spec.ServiceAccount).
		SubResource("token").Body(request).Do(ctx).Into(answer)
	return answer.Status.Token, err
}

// RejectsToken reports whether the API server answers that a token is invalid. If the API server gives
// another answer, or none, RejectsToken returns false.
func (c *Client) RejectsToken(ctx context.Context, server, caFile, token string) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	access := &rest.Config{BearerToken: token, Transport: c.transport}
	if c.transport == nil {
		access.CAFile = caFile
	}
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+"/api", nil)
	if err != nil {
		return false
	}
	answer, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close() // a failed close loses nothing
	return answer.StatusCode == http.StatusUnauthorized
}
