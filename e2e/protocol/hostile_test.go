// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// attacker is the author of a NetworkAttachmentDefinition, with an API server, and with
// files owned by root in the root file system of a container.
type attacker struct {
	*kubeapi.Server
	rootfs string
}

func newAttacker(t *testing.T) attacker {
	t.Helper()
	lab.RequireRoot(t)
	server, err := kubeapi.Start()
	lab.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	rootfs := t.TempDir()
	_, err = server.WriteKubeconfig(rootfs)
	lab.Check(t, err)
	server.Put(meshed(func(p *corev1.Pod) { p.Annotations["sidecar.istio.io/interceptionMode"] = "NONE" }))
	return attacker{server, rootfs}
}

// TestStdinChoosesNoCredentials sends what a namespace's user can write into a
// NetworkAttachmentDefinition: no API server gets a request, the attacker's included.
func TestStdinChoosesNoCredentials(t *testing.T) {
	n, attacker := newNode(t), newAttacker(t)
	kubeconfig := fmt.Sprintf(`
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {tokenFile: %q}}]
`, attacker.URL, attacker.rootfs+"/ca.crt", filepath.Dir(n.kubeconfig)+"/token")
	lab.Check(t, os.WriteFile(attacker.rootfs+"/kubeconfig", []byte(kubeconfig), 0o600))
	lab.Check(t, os.Symlink(n.kubeconfig, filepath.Dir(n.kubeconfig)+"/link"))
	directory := filepath.Dir(n.kubeconfig)
	for name, path := range map[string]string{
		"a container's root file system": attacker.rootfs + "/kubeconfig",
		"another name":                   directory + "/link",
		"below an allowed directory":     directory + "/sub/kubeconfig",
		"through an allowed directory":   directory + "/../" + filepath.Base(attacker.rootfs) + "/kubeconfig",
		"through a process":              "/proc/self/root" + n.kubeconfig,
		"an endless file":                "/proc/kmsg",
		"a relative path":                "kubeconfig",
	} {
		t.Run(name, func(t *testing.T) {
			host := sandbox(t)
			for verb, code := range map[string]int{"ADD": 7, "CHECK": 7} {
				stdin := strings.Replace(n.conf(everyKey), n.kubeconfig, path, 1)
				call{command: verb, netns: host.Path(), stdin: stdin}.run(t).fails(t, code, `"kubeconfig" is`, path)
			}
			expectNoRules(t, host)
		})
	}
	if n.Requests()+attacker.Requests() != 0 {
		t.Errorf("%d requests to the API server and %d to the attacker's", n.Requests(), attacker.Requests())
	}
}

// everyKey holds other keys that an attacker may try.
const everyKey = `"args": {"cni": {"kubeconfig": "/x"}}, "dns": {}, "ipam": {}, "logLevel": "debug", "mesh": {"proxyUID": 1000},
	"CAPTURE_CNI_DIR": "/x", "environment": {"CAPTURE_CNI_DIR": "/x"}, "delegates": [], "runDir": "/x", "stateDir": "/x",`

// TestStdinChoosesNoSocket names a socket of the attacker: the plugin sends no record
// to it and spools none next to it, neither of meshed nor of unmeshed pods.
func TestStdinChoosesNoSocket(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	elsewhere := t.TempDir()
	socket := elsewhere + "/agent.sock"
	conn := lab.AgentSocket(t, socket)
	lab.Check(t, os.Mkdir(elsewhere+"/failures", 0o700))
	stdin := strings.Replace(n.conf(""), `"agentSocket": ""`, fmt.Sprintf(`"agentSocket": %q`, socket), 1)
	host := sandbox(t)
	call{netns: host.Path(), stdin: stdin}.run(t).fails(t, 7, `"agentSocket" is`, socket)
	expectNoRules(t, host)
	unmeshed := `{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "api"}},` + stdin[1:]
	call{netns: host.Path(), stdin: unmeshed}.run(t).succeeds(t)
	entries, err := os.ReadDir(elsewhere + "/failures")
	lab.Check(t, err)
	if sent := lab.Datagrams(t, conn); len(sent)+len(entries) > 0 {
		t.Errorf("%d records sent and %d spooled", len(sent), len(entries))
	}
}

// TestKubeconfigChoosesNoFiles has a kubeconfig in an allowed directory that names
// files in another one: the plugin sends no request.
func TestKubeconfigChoosesNoFiles(t *testing.T) {
	n := newNode(t)
	token := t.TempDir() + "/token"
	lab.Check(t, os.WriteFile(token, []byte(n.Token()), 0o600))
	content, err := os.ReadFile(n.kubeconfig)
	lab.Check(t, err)
	for key, name := range map[string]string{"tokenFile": "token", "certificate-authority": "ca.crt"} {
		original := fmt.Sprintf("%s: %s}", key, name)
		if !strings.Contains(string(content), original) {
			t.Fatalf("no %q in the kubeconfig:\n%s", original, content)
		}
		elsewhere := strings.Replace(string(content), original, fmt.Sprintf("%s: %s}", key, token), 1)
		lab.Check(t, os.WriteFile(n.kubeconfig, []byte(elsewhere), 0o600))
		host := sandbox(t)
		call{netns: host.Path(), stdin: n.conf("")}.run(t).fails(t, 7, key+` is "`+token, "expected a file in")
		expectNoRules(t, host)
	}
	if n.Requests() != 0 {
		t.Errorf("%d requests", n.Requests())
	}
}

// TestPipeForCredentials replaces each file by a pipe without a writer: the plugin
// must not block.
func TestPipeForCredentials(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kubeconfig", "token", "ca.crt"} {
		n := newNode(t)
		path := filepath.Join(filepath.Dir(n.kubeconfig), name)
		lab.Check(t, os.Remove(path))
		lab.Check(t, syscall.Mkfifo(path, 0o600))
		call{netns: sandbox(t).Path(), stdin: n.conf("")}.run(t).fails(t, 7, path, "expected a regular file")
	}
}

// TestLinkedToken has an absolute link to the current token in the same directory, as
// the kubelet has for its certificate.
func TestLinkedToken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	token := filepath.Join(filepath.Dir(n.kubeconfig), "token")
	lab.Check(t, os.Rename(token, token+"-2026-11-22"))
	lab.Check(t, os.Symlink(token+"-2026-11-22", token))
	host := sandbox(t)
	call{netns: host.Path(), stdin: n.conf("")}.run(t).succeeds(t)
	expectCaptured(t, host, true)
}
