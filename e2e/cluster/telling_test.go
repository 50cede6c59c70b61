// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// TestTold has an operator see what became of pods without a look at the node:
// in Events, the agent's log and its metrics. Of pods that are not of the mesh
// nothing is said.
func TestTold(t *testing.T) {
	install(t)
	s := newSpace(t, restricted, cluster.Injected)
	node := c.Nodes[0]
	good, warned, bad, other := server("good", node.Name), server("warned", node.Name), server("bad", node.Name), unmeshed(server("other", node.Name))
	good.Annotations["proxy.istio.io/config"] = `proxyMetadata: {ISTIO_DUAL_STACK: "true"}` // else there is a warning
	warned.Annotations["traffic.sidecar.istio.io/excludeInboundPort"] = "9000"              // without its s
	bad.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = "http"
	s.create(t, bad)
	s.run(t, good, warned, other)
	s.eventSays(t, "bad", "CaptureFailed", `"http"`)
	s.eventSays(t, "warned", "CaptureWarning", "excludeInboundPort")
	agent := agentOn(t, node)
	eventually(t, func() error {
		log := agents(t, "logs", agent, "--container=installer")
		for _, pod := range []string{"good", "warned"} {
			if line := lineWith(log, "msg=captured", "pod="+s.name+"/"+pod+" "); !strings.Contains(line, "backend=nftables") {
				return fmt.Errorf("the log says of %s: %q", pod, line)
			}
		}
		if line := lineWith(log, "pod="+s.name+"/bad "); !strings.Contains(line, "level=WARN") {
			return fmt.Errorf("the log says of the bad one: %q", line)
		}
		return nil
	})
	if line := lineWith(agents(t, "logs", agent, "--container=installer"), s.name+"/other"); line != "" {
		t.Errorf("the log says of a pod that is not of the mesh: %s", line)
	}
	if events := s.kubectl(t, "", "get", "events", "--field-selector=source=capture-cni", "-o", "jsonpath={.items[*].involvedObject.name}"); strings.Contains(events, "other") || strings.Contains(events, "good") {
		t.Errorf("there are Events on %s", events)
	}
	files := unpack(t, agent, "installer")
	for _, want := range []string{`capture_cni_adds_total{reason="annotations",result="failed"}`, `capture_cni_build_info{`} {
		if !strings.Contains(files["metrics.txt"], want) {
			t.Errorf("the metrics don't say %s:\n%s", want, files["metrics.txt"])
		}
	}
}

// TestReport packs what is known of a node, in both containers of its agent, and
// finds no secret in it.
func TestReport(t *testing.T) {
	install(t)
	s := newSpace(t, restricted, cluster.Injected)
	node := c.Nodes[0]
	web := server("web", node.Name)
	s.run(t, web)
	agent := agentOn(t, node)
	token, err := os.ReadFile(node.Path("/var/lib/capture-cni/token"))
	check(t, err)
	eventually(t, func() error {
		if adds := unpack(t, agent, "installer")["adds.json"]; !strings.Contains(adds, s.name) {
			return fmt.Errorf("the last ADDs are %s", adds)
		}
		return nil
	})
	for container, wanted := range map[string]map[string]string{
		"installer": {
			"node/verify.json": `"findings": []`, "node/plugin.txt": "runs: yes", "node/credentials.txt": "token       issued ", "node/preflight.json": "[",
			"node/runtime.json": `"name": "containerd"`, "node/lists.jsonl": `"type":"ptp"`, "about.txt": "process  run ",
		},
		"guard": {"pods/" + s.name + "_web.txt": "state        captured", "metrics.txt": "capture_cni_pods{", "about.txt": "process  guard "},
	} {
		files := unpack(t, agent, container)
		for name, want := range wanted {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s: %s does not say %s:\n%s", container, name, want, files[name])
			}
		}
		for missing := range strings.Lines(files["missing.txt"]) { // pods of the last test may end just now
			if ofAnother := strings.HasPrefix(missing, "pods/") && !strings.HasPrefix(missing, "pods/"+s.name); container == "guard" && !ofAnother {
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

// lineWith gives the first line that has all of these.
func lineWith(text string, all ...string) string {
	for line := range strings.Lines(text) {
		has := true
		for _, want := range all {
			has = has && strings.Contains(line, want)
		}
		if has {
			return line
		}
	}
	return ""
}

// unpack has a container of an agent's pack its report, and gives the files.
func unpack(t *testing.T, agent, container string) map[string]string {
	t.Helper()
	packed, err := c.Kubectl(context.WithoutCancel(t.Context()), "", "--namespace", cluster.Namespace, "exec", agent, "--container="+container, "--", "/capture-cni-node", "report")
	check(t, err)
	unzipped, err := gzip.NewReader(strings.NewReader(packed))
	check(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		check(t, err)
		content, err := io.ReadAll(archive)
		check(t, err)
		files[strings.TrimPrefix(head.Name, "capture-cni/")] = string(content)
	}
}
