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

// TokenSpec is the token that is requested for a service account.
type TokenSpec struct {
	Namespace, ServiceAccount string
	Node                      string // to bind the token to; empty for none
	NodeExisted               bool   // a token was bound to it: without it, request none
	TTL                       time.Duration
}

// RequestToken returns a new token of a service account. Deleting the Node that it
// is bound to revokes it. Where the API server can't bind tokens to Nodes, or has no such
// Node yet, it requests an unbound one, which the chart's policy can refuse. An unbound
// token never follows a bound one: it would outlive a Node that was deleted. No token is
// bound to the agent's pod: each rollout would revoke it.
func (c *Client) RequestToken(ctx context.Context, spec TokenSpec) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	token, err := c.requestToken(ctx, spec, spec.Node)
	if spec.Node != "" && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || isUnknownNode(err) && !spec.NodeExisted) {
		unbound, refusal := c.requestToken(ctx, spec, "") // an API server from before 1.31, or a node's first boot
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

// RejectsToken reports whether the API server answers that a token is invalid. Any
// other answer, or none, says nothing about the token.
func RejectsToken(ctx context.Context, server, caFile, token string) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: caFile}})
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
	_ = answer.Body.Close() // nothing was read of it
	return answer.StatusCode == http.StatusUnauthorized
}
