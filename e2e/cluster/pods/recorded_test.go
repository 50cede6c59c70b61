// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

var update = flag.Bool("update", false, "rewrite the recorded calls")

// recorded is where the plugin's own tests read the recorded calls.
const recorded = "../../protocol/testdata/recorded"

// recording is a recorded call of a CNI plugin.
type recording struct {
	Environment map[string]string
	Stdin       json.RawMessage
}

// TestRecorded compares what the runtimes send with the recorded calls that the
// plugin's own tests send.
func TestRecorded(t *testing.T) {
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var pods []*corev1.Pod
	for _, node := range c.Nodes {
		recordCalls(t, node)
		pods = append(pods, suite.Server("web-"+node.Name, node.Name), suite.Unmeshed(suite.Server("batch-"+node.Name, node.Name)))
		suite.WriteStaticPod(t, node, n.Name, "static")
	}
	n.Run(t, pods...)
	for _, node := range c.Nodes {
		n.WaitSandbox(t, "static-"+node.Name)
		suite.RemoveStaticPod(t, node)
	}
	n.Delete(t, pods...)
	for _, node := range c.Nodes {
		for _, call := range callsOf(node.Runtime) {
			var found recording
			lab.Eventually(t, func() (err error) {
				found, err = findCall(node, n.Name, call.pod+node.Name, call.command, call.late)
				return err
			})
			name := filepath.Join(recorded, strings.ReplaceAll(string(node.Runtime), " ", "-"), call.file+".json")
			content, err := found.anonymous(n.Name, node.Name)
			lab.Check(t, err)
			if *update {
				lab.Check(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644)))
			}
			want, err := os.ReadFile(name)
			lab.Check(t, err)
			if diff := cmp.Diff(string(want), string(content)); diff != "" {
				t.Errorf("%s (-recorded +sent):\n%s", name, diff)
			}
		}
	}
}

// recordedCall is a call for the pod whose name begins so, and the file with its recording.
type recordedCall struct {
	file, pod, command string
	late               bool
}

// callsOf returns the calls of a runtime that are recorded.
func callsOf(runtime cluster.Runtime) []recordedCall {
	calls := []recordedCall{
		{"meshed.add", "web-", "ADD", false},
		{"unmeshed.add", "batch-", "ADD", false},
		{"static.add", "static-", "ADD", false},
		{"meshed.del", "web-", "DEL", false},
	}
	if runtime == cluster.CRIO {
		return append(calls, recordedCall{"meshed.check", "web-", "CHECK", false}) // after ADD
	}
	return append(calls, recordedCall{"meshed.late.del", "web-", "DEL", true}) // when the sandbox is removed
}

// recordCalls appends a plugin that records its calls to a node's list, until the
// test ends.
func recordCalls(t *testing.T, node *cluster.Node) {
	t.Helper()
	lab.Check(t, os.Symlink(filepath.Join(c.Dir, "bin", "apps"), node.Path("/opt/cni/bin/recorder")))
	list := node.Path("/etc/cni/net.d/" + cluster.NetworkConf)
	dropIn := node.Path("/etc/cni/net.d/podnet/recorder.conf")
	const entry = `{"type": "recorder", "capabilities": {"io.kubernetes.cri.pod-annotations": true}}`
	before, err := os.ReadFile(list)
	lab.Check(t, err)
	if node.Runtime == cluster.Containerd2 {
		lab.Check(t, os.WriteFile(dropIn, []byte(entry), 0o600))
	} else {
		end := bytes.LastIndexByte(before, ']')
		lab.Check(t, os.WriteFile(list, slices.Concat(before[:end], []byte(","+entry), before[end:]), 0o600))
	}
	t.Cleanup(func() {
		if node.Runtime == cluster.Containerd2 {
			lab.Check(t, os.Remove(dropIn))
		} else {
			lab.Check(t, os.WriteFile(list, before, 0o600))
		}
		lab.Check(t, errors.Join(suite.TriggerReload(node), os.Remove(node.Path("/opt/cni/bin/recorder"))))
	})
	lab.Check(t, suite.TriggerReload(node))
	lab.Eventually(t, func() error {
		network, err := suite.LoadedNetwork(t.Context(), node)
		if err == nil && !slices.Contains(network.Plugins, "recorder") {
			err = fmt.Errorf("%s does not call the recorder: %s", node.Name, network.Plugins)
		}
		return err
	})
}

// findCall finds a pod's first recorded call; a late one is without CNI_NETNS.
func findCall(node *cluster.Node, namespace, pod, command string, late bool) (recording, error) {
	files, err := filepath.Glob(node.Path("/run/recorder/*.json"))
	if err != nil {
		return recording{}, err
	}
	for _, file := range files { // in chronological order
		content, err := os.ReadFile(file)
		if err != nil {
			return recording{}, err
		}
		var call recording
		if json.Unmarshal(content, &call) != nil {
			continue // half written
		}
		args := strings.Split(call.Environment["CNI_ARGS"], ";")
		if call.Environment["CNI_COMMAND"] == command && (call.Environment["CNI_NETNS"] == "") == late &&
			slices.Contains(args, "K8S_POD_NAMESPACE="+namespace) && slices.Contains(args, "K8S_POD_NAME="+pod) {
			return call, nil
		}
	}
	return recording{}, fmt.Errorf("%s: no %s of %s (without namespace: %v) among %d calls", node.Name, command, pod, late, len(files))
}

// volatile are patterns of what differs between runs, and their replacements.
var volatile = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), strings.Repeat("c0ffee00", 8)},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), strings.Repeat("0123456789abcdef", 2)},
	{regexp.MustCompile(`\bveth[0-9a-f]{8}\b`), "veth00000000"},
	{regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`), "ca:fe:00:00:00:01"},
	{regexp.MustCompile(`\b10\.88\.\d+\.\d+/24`), "10.88.1.2/24"},
	{regexp.MustCompile(`\bfd00:88:\d+::[0-9a-f]+/64`), "fd00:88:1::2/64"},
	{regexp.MustCompile(`\b10\.88\.\d+\.1"`), `10.88.1.1"`},
	{regexp.MustCompile(`\bfd00:88:\d+::1"`), `fd00:88:1::1"`},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT[0-9:.]+Z`), "2026-11-20T10:00:00.000000000Z"},
	{regexp.MustCompile(`/[^":]*/bin\b`), "/opt/cni/bin"},
}

// anonymous returns the recording without names and values of this run.
func (r recording) anonymous(namespace, node string) ([]byte, error) {
	args := strings.Split(r.Environment["CNI_ARGS"], ";") // their order is random
	slices.Sort(args)
	r.Environment["CNI_ARGS"] = strings.Join(args, ";")
	compact, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	if err := json.Indent(&content, compact, "", "  "); err != nil {
		return nil, err
	}
	text := strings.NewReplacer(namespace, "shop", "-"+node, "", node, "node").Replace(content.String())
	for _, c := range volatile {
		text = c.pattern.ReplaceAllString(text, c.by)
	}
	return []byte(text + "\n"), nil
}
