// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// testApplied applies the manifests of different values on the server's side, as GitOps
// tools do: afterwards the server has what was applied, and a diff is empty. It removes
// the chart's release first.
func (s apiServer) testApplied(t *testing.T) {
	lab.Check(t, s.Uninstall(t.Context()))
	s.kubectl(t, "delete", "--ignore-not-found", "clusterrole/capture-cni", "clusterrolebinding/capture-cni")
	s.kubectl(t, "delete", "--ignore-not-found", "--namespace", cluster.Namespace, "serviceaccount/capture-cni")
	chart, err := cluster.Chart(t.Context())
	lab.Check(t, err)
	for name, values := range map[string]string{
		"defaults": "state=present",
		"evict":    "guard.policy=evict,taint.remove=true,pools[0].name=out,pools[0].nodeSelector.out=yes,pools[0].state=absent,updateStrategy.type=OnDelete,daemonSetLabels.team=net,env.A=b,appArmorProfile.type=RuntimeDefault,global.logAsJson=true",
		"policies": "admission.istioInit.enabled=true,admission.capabilities.enabled=true,admission.identity.enabled=true,admission.settings.enabled=true,admission.changes.enabled=true,admission.fence.enabled=true,token.onNode=false",
	} {
		t.Run(name, func(t *testing.T) {
			manifest, err := s.Helm(t.Context(), "template", cluster.Namespace, chart, "--namespace", cluster.Namespace, "--kube-version", "1.36.0", "--set", values)
			lab.Check(t, err)
			run := func(verb string) (string, error) {
				return s.Kubectl(t.Context(), manifest, verb, "--server-side", "--filename=-")
			}
			_, err = run("apply")
			lab.Check(t, err)
			lab.Eventually(t, func() error { // the controllers write the objects' states meanwhile
				diff, err := run("diff")
				if err != nil || diff != "" {
					return fmt.Errorf("after an apply, there is a difference (%w):\n%s", err, diff)
				}
				return nil
			})
			_, err = run("apply")
			lab.Check(t, err)
			_, err = s.Kubectl(t.Context(), manifest, "delete", "--filename=-")
			lab.Check(t, err)
		})
	}
}
