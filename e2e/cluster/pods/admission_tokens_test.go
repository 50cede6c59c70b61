// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

func testTokensPolicy(t *testing.T) {
	const (
		bound = "an agent may request tokens that are bound to its own node alone, which is"
		life  = "an agent may request tokens of at most 24h"
		path  = "/api/v1/namespaces/" + cluster.Namespace + "/serviceaccounts/capture-cni/token"
	)
	node, other, pod := c.Nodes[0].Name, c.Nodes[1].Name, c.MustKubectl(t, "get", "pods", "-n", cluster.Namespace, "-o", "jsonpath={.items[0].metadata.name}")
	for _, tt := range []struct {
		name, from string
		life       time.Duration
		to         *authentication.BoundObjectReference
		refused    string
	}{
		{"too long", node, 24*time.Hour + time.Second, &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node}, life},
		{"unbound", node, 24 * time.Hour, nil, bound + " " + node},
		{"bound to a pod", node, 24 * time.Hour, &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod}, bound},
		{"bound to another node", node, 24 * time.Hour, &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: other}, bound},
		{"with a token of no node", "", 24 * time.Hour, &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node}, bound},
		{"its own", node, 24 * time.Hour, &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seconds := int64(tt.life / time.Second)
			request := write(t, suite.JSON(t, authentication.TokenRequest{
				TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"},
				Spec:     authentication.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: tt.to},
			}))
			waitForPolicy(t, func() error {
				_, err := kubectl(t, append([]string{"create", "-f", request, "--raw", path}, asAgent(tt.from)...)...)
				return agentVerdict("tokens", tt.refused).check(err)
			})
			if tt.to == nil || tt.to.Kind == "Node" { // the API server binds no token to a pod of another account
				c.MustKubectl(t, "create", "-f", request, "--raw", path) // the policy applies to agents alone
			}
		})
	}
}
