// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const agentAccount = "ServiceAccount " + namespace + "/capture-cni-node"

// permissions returns the rules of an account that name a resource, with the verbs of
// all of them.
func permissions(granted []grant, account, resource string) (verbs []string) {
	for _, g := range granted {
		if !slices.Contains(g.To, account) {
			continue
		}
		for _, rule := range g.Rules {
			if slices.Contains(rule.Resources, resource) {
				verbs = append(verbs, rule.Verbs...)
			}
		}
	}
	return verbs
}

// TestTokenOnNode wants the plugin's account, and the agent's right to request its
// tokens, only where tokens are on the nodes.
func TestTokenOnNode(t *testing.T) {
	for _, platform := range []string{"plain", "openshift"} {
		for values, onNode := range map[string]bool{"token.onNode=true": true, "token.onNode=false": false, "token.onNode=false,state=absent": false} {
			all := objects(t, "platform="+platform, "guard.policy=evict", "taint.remove=true", values)
			granted := grants(t, all)
			plugins, tokens := []string(nil), []string(nil)
			if onNode {
				plugins, tokens = []string{"get"}, []string{"create"}
			}
			if got := permissions(granted, "ServiceAccount "+namespace+"/capture-cni", "pods"); !slices.Equal(got, plugins) {
				t.Errorf("%s, %s: the plugin may %q pods, want %q", platform, values, got, plugins)
			}
			if got := permissions(granted, agentAccount, "serviceaccounts/token"); !slices.Equal(got, tokens) {
				t.Errorf("%s, %s: the agent may %q tokens, want %q", platform, values, got, tokens)
			}
			if i := slices.IndexFunc(all, func(o object) bool { return o.name == "capture-cni" && o.kind == "ServiceAccount" }); i >= 0 != onNode {
				t.Errorf("%s, %s: the plugin has an account: %v", platform, values, !onNode)
			}
			if !onNode && slices.ContainsFunc(granted, func(g grant) bool { return slices.ContainsFunc(g.Rules, isAboutAccounts) }) {
				t.Errorf("%s, %s: a rule is about service accounts", platform, values)
			}
		}
	}
}

// TestKept expects of Helm and Argo CD to keep what the plugin needs on nodes that were
// not cleaned, and nothing else.
func TestKept(t *testing.T) {
	for values, want := range map[string]string{
		"token.onNode=true":  "ServiceAccount capture-cni, ClusterRole capture-cni, ClusterRoleBinding capture-cni",
		"token.onNode=false": "",
	} {
		var kept []string
		for _, o := range objects(t, values) {
			var found struct{ Metadata metav1.ObjectMeta }
			if err := yaml.Unmarshal(o.text, &found); err != nil {
				t.Fatal(err)
			}
			annotations := found.Metadata.Annotations
			if annotations["helm.sh/resource-policy"] == "keep" && annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false" {
				kept = append(kept, o.kind+" "+o.name)
			}
		}
		if got := strings.Join(kept, ", "); got != want {
			t.Errorf("%s: kept are %q, want %q", values, got, want)
		}
	}
}

func isAboutAccounts(rule rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rule.Resources, func(r string) bool { return strings.HasPrefix(r, "serviceaccounts") })
}

// TestAgentReadsPods wants the agent to have the permissions that its watch needs, and
// no others for pods, wherever it answers requests of pods.
func TestAgentReadsPods(t *testing.T) {
	watching := []string{"get", "list", "watch"}
	for values, want := range map[string][]string{
		"": watching, "token.onNode=false": watching, "guard.enabled=false": watching, "platform=openshift": watching, "paths.criSocket=none": watching,
		"netconf.agentSocket=": nil, // nothing asks the agent
	} {
		granted := grants(t, objects(t, values))
		if got := permissions(granted, agentAccount, "pods"); !slices.Equal(got, want) {
			t.Errorf("%q: the agent may %q pods, want %q", values, got, want)
		}
		if got := permissions(granted, agentAccount, "secrets"); got != nil {
			t.Errorf("%q: the agent may %q secrets", values, got)
		}
	}
}

// TestCanaryWithoutTokens wants the canary's pod and paths in the installer where the
// agent has credentials to remove from nodes, and the flag in both containers.
func TestCanaryWithoutTokens(t *testing.T) {
	for values, want := range map[string]bool{"token.onNode=true": false, "token.onNode=false": true, "token.onNode=false,state=absent": false} {
		containers := daemonSet(t, values).Spec.Template.Spec.Containers
		expectCanary(t, containers[0], want)
		for _, container := range containers {
			found := false
			for _, variable := range container.Env {
				found = found || variable.Name == "CAPTURE_CNI_TOKEN_ON_NODE" && strings.HasPrefix(values, "token.onNode="+variable.Value)
			}
			if !found {
				t.Errorf("%s: container %s has no or another CAPTURE_CNI_TOKEN_ON_NODE", values, container.Name)
			}
		}
	}
}
