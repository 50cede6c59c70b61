// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
)

// The files of Istio's CNI plugin on a node.
const (
	istioBinary     = "/opt/cni/bin/istio-cni"
	istioRunDir     = "/run/istio-cni"
	istioKubeconfig = istioRunDir + "/istio-cni-kubeconfig"
	istioType       = "istio-cni"
)

// istioEntry is the entry that Istio's installer appends to the primary's list.
const istioEntry = `{
  "type": "istio-cni", "name": "istio-cni", "plugin_log_level": "info", "cni_agent_run_dir": "` + istioRunDir + `",
  "ambient_enabled": false, "exclude_namespaces": ["kube-system"], "pod_namespace": "istio-system", "ipam": {}, "dns": {}
}`

// StartIstioCNI installs a stand-in for Istio's plugin on all nodes, as Istio's
// installer does: the plugin, its kubeconfig, and its entry at the end of the
// primary's list.
func (c *Cluster) StartIstioCNI(ctx context.Context) error {
	program := c.path("bin", istioType)
	build := exec.CommandContext(ctx, "go", "build", "-o", program, module+"/e2e/cluster/istiocni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building a stand-in for istio-cni: %w: %s", err, out)
	}
	for _, node := range c.Nodes {
		access, err := os.ReadFile(c.path("pki", node.Name+".kubeconfig"))
		if err != nil {
			return err
		}
		err = errors.Join(
			os.MkdirAll(node.Path(istioRunDir), 0o755),
			os.WriteFile(node.Path(istioKubeconfig), access, 0o600),
			os.Symlink(program, node.Path(istioBinary)),
		)
		if err == nil {
			err = node.editPrimary(func(plugins []json.RawMessage) []json.RawMessage {
				return append(plugins, json.RawMessage(istioEntry))
			})
		}
		if err != nil {
			return fmt.Errorf("installing a stand-in for istio-cni on %s: %w", node.Name, err)
		}
	}
	return nil
}

// StopIstioCNI uninstalls it in the order of Istio's installer. Where it is not
// installed, this is no error.
func (c *Cluster) StopIstioCNI() error {
	var errs []error
	for _, node := range c.Nodes {
		errs = append(errs, node.editPrimary(func(plugins []json.RawMessage) []json.RawMessage {
			return slices.DeleteFunc(plugins, isIstioEntry)
		}))
		for _, path := range []string{istioKubeconfig, istioBinary} {
			if err := os.Remove(node.Path(path)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func isIstioEntry(plugin json.RawMessage) bool {
	var entry struct{ Type string }
	return json.Unmarshal(plugin, &entry) == nil && entry.Type == istioType
}

// editPrimary rewrites the primary's list as Istio's installer does: the order of
// its keys changes.
func (n *Node) editPrimary(edit func(plugins []json.RawMessage) []json.RawMessage) error {
	path := n.Path("/etc/cni/net.d/" + NetworkConf)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var list map[string]json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	var plugins []json.RawMessage
	if err := json.Unmarshal(list["plugins"], &plugins); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if list["plugins"], err = json.Marshal(edit(plugins)); err != nil {
		return err
	}
	if text, err = json.MarshalIndent(list, "", "  "); err != nil {
		return err
	}
	return replaceFile(path, append(text, '\n'))
}
