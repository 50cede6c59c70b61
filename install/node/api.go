// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/install/kube"
)

const requestTimeout = 10 * time.Second

// API is the API server, with the agent's own rights, for tokens.
type API struct{ client rest.Interface }

// NewAPI connects to nothing yet.
func NewAPI(access *rest.Config) (*API, error) {
	client, err := kube.Client(access, func(scheme *runtime.Scheme) {
		scheme.AddKnownTypes(authentication.SchemeGroupVersion, &authentication.TokenRequest{})
	})
	return &API{client}, err
}

// requestToken asks for a token of the plugin's own account. It is bound to the
// Node, with which it ends, where the API server can do that; never to the
// agent's pod, with which every roll would end it.
func (a *API) requestToken(ctx context.Context, asked CredentialSettings) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	token, err := a.tokenRequest(ctx, asked, asked.Node)
	if asked.Node != "" && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || isUnknownNode(err)) {
		token, err = a.tokenRequest(ctx, asked, "") // an API server from before 1.31, or a node's first boot
	}
	if err != nil {
		return "", fmt.Errorf("requesting a token for service account %s/%s: %w", asked.Namespace, asked.ServiceAccount, err)
	}
	return token, nil
}

func isUnknownNode(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "nodes"
}

func (a *API) tokenRequest(ctx context.Context, asked CredentialSettings, boundTo string) (string, error) {
	seconds := int64(asked.TTL / time.Second)
	request := &authentication.TokenRequest{
		TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: authentication.SchemeGroupVersion.String()},
		Spec:     authentication.TokenRequestSpec{ExpirationSeconds: &seconds},
	}
	if boundTo != "" {
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: boundTo}
	}
	answer := &authentication.TokenRequest{}
	err := a.client.Post().Namespace(asked.Namespace).Resource("serviceaccounts").Name(asked.ServiceAccount).
		SubResource("token").Body(request).Do(ctx).Into(answer)
	return answer.Status.Token, err
}

// refuses tells whether the API server takes a token for invalid. Any other
// answer, or none, is no reason to ask for a new one.
func refuses(ctx context.Context, at CredentialSettings, token string) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: at.CAFile}})
	if err != nil {
		return false
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(at.Server, "/")+"/api", nil)
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
