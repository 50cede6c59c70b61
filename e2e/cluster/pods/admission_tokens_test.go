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
	const node, other = "tokens-1", "tokens-2" // without a label: no DaemonSet selects them
	for _, name := range []string{node, other} {
		c.MustKubectl(t, "create", "-f", write(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "`+name+`"}}`))
		defer c.MustKubectl(t, "delete", "node", name)
	}
	for _, tt := range []struct {
		name, from string
		life       time.Duration
		to         *authentication.BoundObjectReference
		refused    string
	}{
		{"too long", node, 24*time.Hour + time.Second, &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node}, life},
		{"unbound", node, 24 * time.Hour, nil, bound + " " + node},
		{"bound to a pod", node, 24 * time.Hour, &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "web"}, bound},
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
			if tt.to == nil || tt.to.Kind == "Node" { // there is no such pod
				c.MustKubectl(t, "create", "-f", request, "--raw", path) // the policy applies to agents alone
			}
		})
	}
}
