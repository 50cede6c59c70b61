// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// TestApplyTwice applies the manifests of different values on the server's side, as
// GitOps tools do: afterwards the server has what was applied, and a diff is empty.
func TestApplyTwice(t *testing.T) {
	chart, err := cluster.Chart(t.Context())
	suite.Check(t, err)
	const namespace = "applied"
	c.MustKubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { c.MustKubectl(t, "delete", "namespace", namespace) })
	for name, values := range map[string][]string{
		"defaults": nil,
		"evict": {
			"--set", "guard.policy=evict,taint.remove=true,taint.tryKernel=true,updateStrategy.type=OnDelete,daemonSetLabels.team=net,env.A=b",
			"--set", "appArmorProfile.type=RuntimeDefault,global.logAsJson=true,besideIstioCNI=true",
		},
		"policies": {
			"--set", "admission.istioInit.enabled=true,admission.capabilities.enabled=true,admission.identity.enabled=true",
			"--set", "admission.settings.enabled=true,admission.changes.enabled=true,token.onNode=false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"template", cluster.Namespace, chart, "--namespace", namespace, "--kube-version", "1.36.0", "--set", "nodeSelector.no=node"}, values...)
			manifest, err := c.Helm(t.Context(), args...)
			suite.Check(t, err)
			run := func(verb string) (string, error) {
				return c.Kubectl(t.Context(), manifest, verb, "--server-side", "--filename=-")
			}
			t.Cleanup(func() {
				_, err := c.Kubectl(context.WithoutCancel(t.Context()), manifest, "delete", "--wait", "--ignore-not-found", "--filename=-")
				suite.Check(t, err)
			})
			_, err = run("apply")
			suite.Check(t, err)
			suite.Eventually(t, func() error { // the controllers write the objects' states meanwhile
				diff, err := run("diff")
				if err != nil || diff != "" {
					return fmt.Errorf("after an apply, there is a difference (%w):\n%s", err, diff)
				}
				return nil
			})
			_, err = run("apply")
			suite.Check(t, err)
		})
	}
}
