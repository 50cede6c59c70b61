// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestObservability expects the outcome of each ADD in Events, in the agent's log
// and in its metrics, and nothing about pods outside the mesh.
func TestObservability(t *testing.T) {
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0]
	good, warned, bad, other := suite.Server("good", node.Name), suite.Server("warned", node.Name), suite.Server("bad", node.Name), suite.Unmeshed(suite.Server("other", node.Name))
	good.Annotations["proxy.istio.io/config"] = `proxyMetadata: {ISTIO_DUAL_STACK: "true"}` // avoids a warning
	warned.Annotations["traffic.sidecar.istio.io/excludeInboundPort"] = "9000"              // misspelt: Port instead of Ports
	bad.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "http"
	n.Create(t, bad)
	n.Run(t, good, warned, other)
	waitForEvent(t, n, "bad", "CaptureFailed", `"http"`)
	waitForEvent(t, n, "warned", "CaptureWarning", "excludeInboundPort")
	agent := agentOn(t, node)
	lab.Eventually(t, func() error {
		log := kubectl(t, "logs", agent, "--container=installer")
		for _, pod := range []string{"good", "warned"} {
			if line := suite.LineWith(log, "msg=captured", "pod="+n.Name+"/"+pod+" "); !strings.Contains(line, "backend=nftables") {
				return fmt.Errorf("the log's line about %s is %q", pod, line)
			}
		}
		if line := suite.LineWith(log, "pod="+n.Name+"/bad "); !strings.Contains(line, "level=WARN") {
			return fmt.Errorf("the log's line about the pod bad is %q", line)
		}
		return nil
	})
	if line := suite.LineWith(kubectl(t, "logs", agent, "--container=installer"), n.Name+"/other"); line != "" {
		t.Errorf("the log has a line about a pod outside the mesh: %s", line)
	}
	if events := n.Kubectl(t, "", "get", "events", "--field-selector=source=capture-cni", "-o", "jsonpath={.items[*].involvedObject.name}"); strings.Contains(events, "other") || strings.Contains(events, "good") {
		t.Errorf("there are Events on %s", events)
	}
	files := unpackReport(t, agent, "installer")
	for _, want := range []string{`capture_cni_adds_total{reason="annotations",result="failed"}`, `capture_cni_build_info{`} {
		if !strings.Contains(files["metrics.txt"], want) {
			t.Errorf("the metrics lack %s:\n%s", want, files["metrics.txt"])
		}
	}
}

// TestReport runs report in both containers of a node's agent, and expects the
// facts and no secret in the archives.
func TestReport(t *testing.T) {
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0]
	web := suite.Server("web", node.Name)
	n.Run(t, web)
	agent := agentOn(t, node)
	token, err := os.ReadFile(node.Path("/var/lib/capture-cni/token"))
	lab.Check(t, err)
	lab.Eventually(t, func() error {
		if adds := unpackReport(t, agent, "installer")["adds.json"]; !strings.Contains(adds, n.Name) {
			return fmt.Errorf("the last ADDs are %s", adds)
		}
		return nil
	})
	for container, wanted := range map[string]map[string]string{
		"installer": {
			"node/verify.json": `"findings": []`, "node/programs.jsonl": `"runs":true`, "node/credentials.json": `"tokenIssued":"20`, "node/preflight.json": "[",
			"node/runtime.json": `"name": "containerd"`, "node/lists.jsonl": `"type":"ptp"`, "about.txt": "--scope=node",
		},
		"guard": {"pods/" + n.Name + "_web.json": `"state": "captured"`, "metrics.txt": "capture_cni_pods{", "about.txt": "--scope=pods"},
	} {
		files := unpackReport(t, agent, container)
		for name, want := range wanted {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s: %s lacks %s:\n%s", container, name, want, files[name])
			}
		}
		for missing := range strings.Lines(files["missing.txt"]) { // pods of the last test may be ending
			if ofAnother := strings.HasPrefix(missing, "pods/") && !strings.HasPrefix(missing, "pods/"+n.Name); container == "guard" && !ofAnother {
				t.Errorf("%s: missing is %s", container, missing)
			}
		}
		for name, content := range files {
			if strings.Contains(content, string(token)) || strings.Contains(content, "PRIVATE KEY") {
				t.Errorf("%s: %s has a secret", container, name)
			}
		}
	}
}
