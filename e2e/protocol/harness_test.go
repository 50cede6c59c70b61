// SPDX-License-Identifier: Apache-2.0

// Package protocol drives the built plugin as runtimes do: through libcni,
// through cnitool, and by hand with whatever environment and stdin can be.
package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// bin is where TestMain builds the plugin, the reference plugins and cnitool.
var bin string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "protocol-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	for _, target := range []string{
		"github.com/containernetworking/plugins/plugins/main/bridge",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
		"github.com/containernetworking/cni/cnitool",
		"github.com/capture-cni/capture-cni/plugin",
	} {
		build := exec.Command("go", "build", "-trimpath", "-o", bin+"/", target)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n%s", target, err, out)
			return 1
		}
	}
	if err := os.Rename(bin+"/plugin", bin+"/capture-cni"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

const uid = "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"

// node is an API server with a meshed pod shop/web and an unmeshed shop/batch,
// and credentials for it.
type node struct {
	*kubeapi.Server
	kubeconfig string
}

func newNode(t *testing.T) node {
	t.Helper()
	return serve(t)
}

func serve(t *testing.T, opts ...kubeapi.Option) node {
	t.Helper()
	lab.RequireRoot(t)
	api, err := kubeapi.Start(opts...)
	check(t, err)
	t.Cleanup(func() { _ = api.Close() })
	kubeconfig, err := api.WriteKubeconfig(t.TempDir())
	check(t, err)
	api.Put(meshed())
	batch := &corev1.Pod{}
	batch.Namespace, batch.Name, batch.UID = "shop", "batch", uid
	batch.Spec.Containers = []corev1.Container{{Name: "batch"}}
	api.Put(batch)
	return node{api, kubeconfig}
}

func meshed(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "shop", "web", types.UID(uid)
	pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
	pod.Spec.Containers = []corev1.Container{{Name: "web"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// sandbox is a pod's namespace as the interface plugin leaves it.
func sandbox(t *testing.T) *lab.Host {
	t.Helper()
	lab.RequireRoot(t)
	host, err := lab.NewHost()
	check(t, err)
	t.Cleanup(func() { check(t, host.Close()) })
	check(t, host.AddAddresses("lo", "10.77.0.2/32"))
	return host
}

// call is one call of the plugin. Fields that stay zero take what a runtime sends.
type call struct {
	command, netns, ifname, container, args, stdin string
	env                                            []string
}

const noArgs = "-"

// outcome is what came of it.
type outcome struct {
	stdout, stderr string
	status         int
}

func (c call) prepare() *exec.Cmd {
	or := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	args := or(c.args, "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID="+uid)
	if args == noArgs {
		args = ""
	}
	command := exec.Command(filepath.Join(bin, "capture-cni"))
	command.Env = append([]string{
		"CNI_COMMAND=" + or(c.command, "ADD"), "CNI_CONTAINERID=" + or(c.container, "sandbox"),
		"CNI_NETNS=" + c.netns, "CNI_IFNAME=" + or(c.ifname, "eth0"), "CNI_PATH=" + bin, "CNI_ARGS=" + args,
	}, c.env...)
	command.Stdin = strings.NewReader(c.stdin)
	return command
}

func (c call) run(t *testing.T) outcome {
	t.Helper()
	return finish(t, c.prepare())
}

func finish(t *testing.T, command *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return outcome{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// cniError is what a failed call says.
type cniError struct {
	CNIVersion string
	Code       int
	Msg        string
	Details    string
}

// fails wants one JSON document with the code and every text.
func (o outcome) fails(t *testing.T, code int, texts ...string) {
	t.Helper()
	var e cniError
	o.document(t, &e)
	if o.status == 0 || e.Code != code {
		t.Errorf("status %d, code %d, want %d: %s", o.status, e.Code, code, o.stdout)
	}
	for _, text := range texts {
		if !strings.Contains(e.Msg+e.Details, text) {
			t.Errorf("the error does not say %q: %s", text, e.Msg)
		}
	}
}

// succeeds wants status 0 and one JSON document.
func (o outcome) succeeds(t *testing.T) map[string]any {
	t.Helper()
	if o.status != 0 {
		t.Fatalf("status %d: %s%s", o.status, o.stdout, o.stderr)
	}
	var result map[string]any
	o.document(t, &result)
	return result
}

// silent wants status 0 and an empty stdout.
func (o outcome) silent(t *testing.T) {
	t.Helper()
	if o.status != 0 || o.stdout != "" {
		t.Errorf("status %d, stdout %q, stderr %s", o.status, o.stdout, o.stderr)
	}
}

// document wants exactly one on stdout.
func (o outcome) document(t *testing.T, into any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(o.stdout))
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("stdout %q: %v", o.stdout, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		t.Errorf("more than one document on stdout: %q", o.stdout)
	}
}

// conf is a configuration of ours alone; extra holds more keys, each with a comma behind.
func (n node) conf(extra string) string {
	return fmt.Sprintf(`{%s "cniVersion": "1.0.0", "name": "test", "type": "capture-cni", "lookupTimeout": "1s", "kubeconfig": %q}`, extra, n.kubeconfig)
}

// ruleset is what nft lists in a namespace.
func ruleset(t *testing.T, host *lab.Host) string {
	t.Helper()
	var out []byte
	check(t, host.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "nft", "-s", "list", "ruleset").Output()
		return err
	}))
	return string(out)
}

func expectCaptured(t *testing.T, host *lab.Host, want bool) {
	t.Helper()
	if rules := ruleset(t, host); strings.Contains(rules, "redirect to :15001") != want {
		t.Errorf("captured is not %v:\n%s", want, rules)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newNodeOn serves on the loopback of a host, for plugins that run there.
func newNodeOn(t *testing.T, host *lab.Host) node {
	t.Helper()
	var listener net.Listener
	check(t, host.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	return serve(t, kubeapi.WithListener(listener))
}

// cnitool runs the command in the calling thread's namespace.
func cnitool(t *testing.T, dir, verb, netns string) outcome {
	t.Helper()
	command := exec.Command(filepath.Join(bin, "cnitool"), verb, "chain", netns)
	command.Env = append(os.Environ(), "CNI_PATH="+bin, "NETCONFPATH="+dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web")
	return finish(t, command)
}
