// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// ofSandboxes are critest's specs of sandboxes, networks and port mappings.
const ofSandboxes = `\[k8s.io\] (PodSandbox|Networking) `

// failOnCRIO fail on CRI-O, with the plugin and without: CRI-O does not masquerade connections from
// 127.0.0.1 to a pod's port, and by default it has no metrics of pods.
var failOnCRIO = []string{
	"[k8s.io] Networking runtime should support networking runtime should support port mapping with host port and container port [Conformance]",
	"[k8s.io] PodSandbox runtime should support metrics operations runtime should support returning metrics descriptors [Conformance]",
	"[k8s.io] PodSandbox runtime should support metrics operations runtime should support listing pod sandbox metrics [Conformance]",
}

// theirNamespaces are those of critest's pods, which no API server knows.
const theirNamespaces = "netconf.excludeNamespaces={cri-test-namespace*}"

// TestCRI expects that critest passes with each runtime, without this project and with it.
func TestCRI(t *testing.T) {
	const application, server = "test.local/critest/application:1", "test.local/critest/server:1"
	lab.Check(t, c.LoadConformanceImages(t.Context(), fetched, "pause", application))
	lab.Check(t, c.LoadConformanceImages(t.Context(), fetched, "test-webserver", server))
	images := filepath.Join(c.Dir, "critest.yaml")
	lab.Check(t, os.WriteFile(images, []byte("defaultTestContainerImage: "+application+"\nwebServerTestImage: "+server+"\n"), 0o644))
	for _, chain := range []string{"without", "with"} {
		t.Run(chain, func(t *testing.T) {
			if c.UninstallChart(t); chain == "with" {
				c.InstallChart(t, theirNamespaces)
				expectAdds(t, `reason="the namespace is excluded"`)
			}
			for _, node := range c.Nodes {
				lab.Check(t, node.StopKubelet()) // which ends sandboxes that it does not know
				t.Run(strings.ReplaceAll(string(node.Runtime), " ", "-"), func(t *testing.T) {
					name := "critest-" + chain + "-" + node.Name
					socket := "unix://" + strings.TrimPrefix(node.Socket(), node.Path(""))
					// nsenter's directory is outside of the node's root.
					command := node.Command(t.Context(), "env", "--chdir=/", filepath.Join(c.Parts, "critest"), "--runtime-endpoint="+socket, "--image-endpoint="+socket,
						"--test-images-file="+images, "--registry-prefix=test.local", "--ginkgo.focus="+ofSandboxes, "--ginkgo.json-report="+filepath.Join(c.Dir, name+".json"))
					var failing []string
					if node.Runtime == cluster.CRIO {
						failing = failOnCRIO
					}
					expect(t, command, name, failing...)
				})
				lab.Check(t, node.StartKubelet())
			}
		})
	}
}
