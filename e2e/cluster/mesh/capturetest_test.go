// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestKubectlTestNextToIstiod has istiod inject all pods that do not refuse: those of
// kubectl capture-cni test are not injected, and pass. In a namespace with injection they
// are, and the test says so.
func TestKubectlTestNextToIstiod(t *testing.T) {
	c.InstallChart(t)
	p := c.BuildPlugin(t)
	const all = "sidecarInjectorWebhook.enableNamespacesByDefault="
	lab.Check(t, c.InstallIstio(t.Context(), suite.DefaultRevision, suite.IstiodSettings(all+"true")...))
	t.Cleanup(func() {
		lab.Check(t, c.InstallIstio(context.WithoutCancel(t.Context()), suite.DefaultRevision, suite.IstiodSettings()...))
	})
	out, status := p.Run(t, "test")
	if status != 0 || !strings.Contains(out, " passed, 0 failed, 0 skipped") {
		t.Errorf("status %d:\n%s", status, out)
	}
	n := c.NewNamespace(t)
	p.Expect(t, "test --mode redirect --namespace "+n.Name, 2, "skipped", "admission changed the pod", "nothing could be tested")
}
