// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestLookupIsNoPlugin names capture-cni-lookup as a plugin, with a request in its
// configuration, as the author of a NetworkAttachmentDefinition could: it sends no request.
func TestLookupIsNoPlugin(t *testing.T) {
	n := newNode(t)
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "net", "type": "capture-cni-lookup",
		"version": capture.PodVersion, "directory": filepath.Dir(n.kubeconfig), "pod": capture.PodRef{Namespace: "shop", Name: "web"},
	})
	lab.Check(t, err)
	program := filepath.Join(bin, "capture-cni-lookup")
	for _, command := range []string{"ADD", "CHECK", "GC", "STATUS", "VERSION"} {
		call{plugin: program, command: command, netns: "/none", stdin: string(conf)}.run(t).fails(t, 7, "capture-cni-lookup is no CNI plugin", `expected the type "capture-cni"`)
	}
	if out := (call{plugin: program, command: "DEL", netns: "/none", stdin: string(conf)}).run(t); out.status != 0 || out.stdout+out.stderr != "" {
		t.Errorf("DEL: %+v", out)
	}
	if n.Requests() != 0 {
		t.Errorf("%d requests", n.Requests())
	}
}

// lookUp executes capture-cni-lookup as a plugin of some release does.
func lookUp(t *testing.T, version int, directory string, env ...string) (answer lookup.Answer) {
	t.Helper()
	document, err := json.Marshal(lookup.Request{Version: version, Directory: directory, Pod: capture.PodRef{Namespace: "shop", Name: "web"}})
	lab.Check(t, err)
	command := exec.Command(filepath.Join(bin, "capture-cni-lookup"))
	command.Env, command.Stdin = env, strings.NewReader(string(document))
	out, err := command.Output()
	lab.Check(t, err)
	lab.Check(t, json.Unmarshal(out, &answer))
	return answer
}

// TestLookupForEarlierPlugin answers plugins of earlier releases in their version, but not
// about a pod whose fence they would leave out.
func TestLookupForEarlierPlugin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for name, pod := range map[string]*corev1.Pod{"plain": meshed(), "fenced": fencedSidecar()} {
		pod.Name = "web"
		n.Put(pod)
		for version := 1; version <= capture.PodVersion; version++ {
			answer := lookUp(t, version, filepath.Dir(n.kubeconfig))
			want := name == "plain" || version == capture.PodVersion
			if answer.Version != version || (answer.Pod != nil) != want || (answer.Fault == nil) != want {
				t.Errorf("%s, version %d: %+v", name, version, answer)
			}
		}
	}
}

// TestLookupDirectories reads credentials in allowed directories alone.
func TestLookupDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	allowed := filepath.Dir(n.kubeconfig)
	elsewhere := t.TempDir()
	for _, name := range []string{"kubeconfig", "token", "ca.crt"} {
		content, err := os.ReadFile(filepath.Join(allowed, name))
		lab.Check(t, err)
		lab.Check(t, os.WriteFile(filepath.Join(elsewhere, name), content, 0o600))
	}
	ask := func(directory string, env ...string) lookup.Answer {
		return lookUp(t, capture.PodVersion, directory, env...)
	}
	if answer := ask(allowed); answer.Pod == nil || answer.Fault != nil {
		t.Errorf("in an allowed directory: %+v", answer)
	}
	before := n.Requests()
	for _, directory := range []string{elsewhere, "", "/", allowed + "/../" + filepath.Base(elsewhere)} {
		if answer := ask(directory); answer.Pod != nil || answer.Fault == nil || answer.Fault.Kind != lookup.Untrusted || !strings.Contains(answer.Fault.Message, "kubeconfig") {
			t.Errorf("in %q: %+v", directory, answer)
		}
	}
	if n.Requests() != before {
		t.Errorf("%d requests", n.Requests()-before)
	}
	if answer := ask(elsewhere, "CAPTURE_CNI_DIR="+elsewhere); answer.Pod == nil {
		t.Errorf("in the directory of the variable: %+v", answer)
	}
}
