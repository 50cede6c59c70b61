// SPDX-License-Identifier: Apache-2.0

// Package agent runs the built node agent on a node that consists of directories,
// while runtimes, other plugins' installers and API servers change and fail.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// bin is where TestMain builds the agent and the plugin.
var bin string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

// noRuntime has the agents ask no runtime, unless a test gives them one: the machine may
// have its own.
const noRuntime = "CAPTURE_CNI_CRI_SOCKET=none"

func buildAndRun(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "agent-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	for name, source := range map[string]string{"capture-cni": "plugin/capture-cni", "capture-cni-lookup": "plugin/capture-cni-lookup", "capture-cni-node": "install/capture-cni-node"} {
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(bin, name), "github.com/capture-cni/capture-cni/"+source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n%s", name, err, out)
			return 1
		}
	}
	return m.Run()
}

// node is one node: its directories, and the API server of its cluster.
type node struct {
	dir, netDir, binDir, stateDir, runDir string
	access                                string // the agent's own kubeconfig
	api                                   *kubeapi.Server
	uids                                  map[string]string // of its pods, where they are not podUID
	release                               string            // directory of the agent and of the plugin that it installs
	earlierRules                          string            // those of an earlier release, where its plugin may run
}

// podUID is the UID of the stand-in's pods.
const podUID = "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"

func (n *node) uid(pod string) string { return cmp.Or(n.uids[pod], podUID) }

const kindnet = `{
	"cniVersion": "0.3.1",
	"name": "kindnet",
	"plugins": [
	{
		"type": "ptp",
		"ipMasq": false,
		"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}
	},
	{"type": "portmap", "capabilities": {"portMappings": true}}
	]
}
`

const primaryName = "10-kindnet.conflist"

func newNode(t *testing.T, options ...kubeapi.Option) *node {
	t.Helper()
	n := newDirectories(t)
	var err error
	n.api, err = kubeapi.Start(options...)
	lab.Check(t, err)
	t.Cleanup(func() { _ = n.api.Close() })
	access := t.TempDir()
	n.access, err = n.api.WriteKubeconfig(access)
	lab.Check(t, err)
	return n
}

// newDirectories makes a node without an API server.
func newDirectories(t *testing.T) *node {
	t.Helper()
	lab.RequireRoot(t)
	dir := shortDir(t)
	n := &node{dir: dir, netDir: dir + "/net.d", binDir: dir + "/bin", stateDir: dir + "/state", runDir: dir + "/run", release: bin}
	for _, directory := range []string{n.netDir, n.binDir} {
		lab.Check(t, os.Mkdir(directory, 0o755))
	}
	n.write(t, primaryName, kindnet)
	return n
}

// shortDir is a temporary directory without the test's name in its path: that of a
// socket is limited to 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "node-")
	lab.Check(t, err)
	t.Cleanup(func() { lab.Check(t, os.RemoveAll(dir)) })
	return dir
}

func (n *node) write(t *testing.T, name, content string) {
	t.Helper()
	lab.Check(t, os.WriteFile(filepath.Join(n.netDir, name), []byte(content), 0o644))
}

func (n *node) flags(args ...string) []string {
	return append([]string{
		"--net-dir", n.netDir, "--bin-dir", n.binDir, "--state-dir", n.stateDir, "--run-dir", n.runDir,
		"--plugin", filepath.Join(n.release, "capture-cni"), "--kubeconfig", n.access, "--ca-file", filepath.Dir(n.access) + "/ca.crt",
		"--namespace", "mesh", "--node-name", "node-1",
	}, args...)
}

// agent is a process of the agent, with the URL of its probes.
type agent struct {
	*exec.Cmd
	url string
	log *lab.Log
}

// start runs the agent until the test ends.
func (n *node) start(t *testing.T, args ...string) *agent {
	t.Helper()
	return n.startBehind(t, nil, args...)
}

// startBehind runs the agent as the child of another command, which limits it.
func (n *node) startBehind(t *testing.T, command []string, args ...string) *agent {
	t.Helper()
	address, err := lab.FreeAddress()
	lab.Check(t, err)
	a := &agent{url: "http://" + address, log: &lab.Log{}}
	argv := slices.Concat(command, []string{filepath.Join(n.release, "capture-cni-node"), "run", "--listen", address}, n.flags(args...))
	a.Cmd = exec.Command(argv[0], argv[1:]...)
	a.Stdout, a.Stderr = a.log, a.log
	a.Env = append(os.Environ(), noRuntime)
	lab.Check(t, a.Start())
	t.Cleanup(func() { _ = a.Process.Kill(); _ = a.Wait() })
	return a
}

// stop ends the agent as a runtime does.
func (a *agent) stop(t *testing.T) {
	t.Helper()
	lab.Check(t, a.Process.Signal(syscall.SIGTERM))
	if err := a.Wait(); err != nil {
		t.Errorf("the agent exited with %v: %s", err, a.log)
	}
}

// waitForLog waits until the agent has logged a text.
func (a *agent) waitForLog(t *testing.T, text string) {
	t.Helper()
	lab.Eventually(t, func() error {
		if log := a.log.String(); !strings.Contains(log, text) {
			return &unexpected{text, log}
		}
		return nil
	})
}

func (a *agent) get(path string) (status int, body string) {
	ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(content)
}

// ready waits until /readyz answers 200, or another status, and returns the body.
func (a *agent) ready(t *testing.T, want ...int) (body string) {
	t.Helper()
	want = append(want, http.StatusOK)
	lab.Eventually(t, func() error {
		var status int
		if status, body = a.get("/readyz"); status != want[0] {
			return fmt.Errorf("status %d, want %d: %s\n%s", status, want[0], body, a.log)
		}
		return nil
	})
	return body
}

// command runs one of the agent's other commands.
func (n *node) command(name string, args ...string) (string, error) {
	command := exec.Command(filepath.Join(n.release, "capture-cni-node"), append([]string{name}, n.flags(args...)...)...)
	command.Env = append(os.Environ(), noRuntime)
	out, err := command.CombinedOutput()
	return string(out), err
}

// loadedTypes returns the types of the plugins that a runtime with libcni would call.
func (n *node) loadedTypes() (string, error) {
	files, err := libcni.ConfFiles(n.netDir, []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no list: %w", err)
	}
	if filepath.Ext(files[0]) != ".conflist" {
		content, err := os.ReadFile(files[0])
		if err != nil {
			return "", err
		}
		conf, err := libcni.NetworkPluginConfFromBytes(content)
		if err != nil {
			return "", err
		}
		return conf.Network.Type, nil
	}
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		return "", err
	}
	var types []string
	for _, plugin := range list.Plugins {
		types = append(types, plugin.Network.Type)
	}
	return strings.Join(types, " "), nil
}

// files returns all files below a directory with their content.
func files(t *testing.T, directory string) map[string]string {
	t.Helper()
	content := map[string]string{}
	lab.Check(t, filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || entry.Type() == os.ModeSocket {
			return err
		}
		data, err := os.ReadFile(path)
		content[strings.TrimPrefix(path, directory)] = string(data)
		return err
	}))
	return content
}
