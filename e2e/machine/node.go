// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Node is a node that consists of directories, with the API server of its cluster.
type Node struct {
	Dir, NetDir, BinDir, StateDir, RunDir string
	Access                                string // the agent's own kubeconfig
	API                                   *kubeapi.Server
	UIDs                                  map[string]string // of its pods, where they are not PodUID
	Release                               string            // directory of the agent and of the plugin that it installs
	EarlierRules                          string            // those of an earlier release, where its plugin may run
}

// UID returns the UID of a pod.
func (n *Node) UID(pod string) string { return cmp.Or(n.UIDs[pod], PodUID) }

// Kindnet is the list of the primary plugin.
const Kindnet = `{
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

// PrimaryName is the name of the file with the list of the primary plugin.
const PrimaryName = "10-kindnet.conflist"

// NewNode makes a node whose API server is a stand-in.
func NewNode(t *testing.T, options ...kubeapi.Option) *Node {
	t.Helper()
	n := NewDirectories(t)
	var err error
	n.API, err = kubeapi.Start(options...)
	lab.Check(t, err)
	t.Cleanup(func() { _ = n.API.Close() })
	access := t.TempDir()
	n.Access, err = n.API.WriteKubeconfig(access)
	lab.Check(t, err)
	return n
}

// NewDirectories makes a node without an API server.
func NewDirectories(t *testing.T) *Node {
	t.Helper()
	lab.RequireRoot(t)
	dir := ShortDir(t)
	n := &Node{Dir: dir, NetDir: dir + "/net.d", BinDir: dir + "/bin", StateDir: dir + "/state", RunDir: dir + "/run", Release: Bin}
	for _, directory := range []string{n.NetDir, n.BinDir} {
		lab.Check(t, os.Mkdir(directory, 0o755))
	}
	n.Write(t, PrimaryName, Kindnet)
	return n
}

// ShortDir is a temporary directory without the test's name in its path: that of a
// socket is limited to 107 bytes.
func ShortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "node-")
	lab.Check(t, err)
	t.Cleanup(func() { lab.Check(t, os.RemoveAll(dir)) })
	return dir
}

// Write writes a file of the directory of lists.
func (n *Node) Write(t *testing.T, name, content string) {
	t.Helper()
	lab.Check(t, os.WriteFile(filepath.Join(n.NetDir, name), []byte(content), 0o644))
}

// Flags returns the flags of all commands of the agent.
func (n *Node) Flags(args ...string) []string {
	return append([]string{
		"--net-dir", n.NetDir, "--bin-dir", n.BinDir, "--state-dir", n.StateDir, "--run-dir", n.RunDir,
		"--plugin", filepath.Join(n.Release, "capture-cni"), "--kubeconfig", n.Access, "--ca-file", filepath.Dir(n.Access) + "/ca.crt",
		"--namespace", "mesh", "--node-name", "node-1",
	}, args...)
}

// Command runs one of the agent's other commands.
func (n *Node) Command(name string, args ...string) (string, error) {
	command := exec.Command(filepath.Join(n.Release, "capture-cni-node"), append([]string{name}, n.Flags(args...)...)...)
	command.Env = append(os.Environ(), NoRuntime)
	out, err := command.CombinedOutput()
	return string(out), err
}

// LoadedTypes returns the types of the plugins that a runtime with libcni would call.
func (n *Node) LoadedTypes() (string, error) {
	files, err := libcni.ConfFiles(n.NetDir, []string{".conf", ".conflist", ".json"})
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
