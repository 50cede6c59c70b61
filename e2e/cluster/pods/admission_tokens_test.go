// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
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
	own := &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: node}
	rows := []tokenRequest{
		{"too long", node, 24*time.Hour + time.Second, own, life},
		{"unbound", node, 24 * time.Hour, nil, bound + " " + node},
		{"bound to a pod", node, 24 * time.Hour, &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "web"}, bound},
		{"bound to another node", node, 24 * time.Hour, &authentication.BoundObjectReference{Kind: "Node", APIVersion: "v1", Name: other}, bound},
		{"with a token of no node", "", 24 * time.Hour, own, bound},
		{"its own", node, 24 * time.Hour, own, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) { row.try(t, path) })
	}
	// API servers before 1.31 bind tokens to no Node.
	chart, err := cluster.Chart(t.Context())
	lab.Check(t, err)
	older, err := c.Helm(t.Context(), "template", cluster.Namespace, chart, "--namespace", cluster.Namespace, "--show-only", "templates/tokens.yaml", "--kube-version", "1.30.9")
	lab.Check(t, err)
	c.MustKubectl(t, "apply", "-f", write(t, older))
	t.Run("Kubernetes 1.30", func(t *testing.T) {
		for _, row := range rows {
			if row.name == "unbound" {
				row.refused = ""
			}
			t.Run(row.name, func(t *testing.T) { row.try(t, path) })
		}
	})
}

// tokenRequest is a request of an agent for a token.
type tokenRequest struct {
	name, from string // the agent's node
	life       time.Duration
	to         *authentication.BoundObjectReference
	refused    string
}

func (r tokenRequest) try(t *testing.T, path string) {
	seconds := int64(r.life / time.Second)
	request := write(t, suite.JSON(t, authentication.TokenRequest{
		TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"},
		Spec:     authentication.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: r.to},
	}))
	waitForPolicy(t, func() error {
		_, err := kubectl(t, append([]string{"create", "-f", request, "--raw", path}, asAgent(r.from)...)...)
		return agentVerdict("tokens", r.refused).check(err)
	})
	if r.to == nil || r.to.Kind == "Node" { // there is no such pod
		c.MustKubectl(t, "create", "-f", request, "--raw", path) // the policy applies to agents alone
	}
}
