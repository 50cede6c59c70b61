// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const flannelNamespace = "kube-flannel"

// flannelNetwork is the network of flannel's manifest, and what replaces it: that of
// podsIPv4 and podsIPv6.
const (
	flannelNetwork     = `"Network": "10.244.0.0/16",`
	flannelDualNetwork = `"Network": "10.88.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:88::/32",`
)

// flannelManifest returns flannel's own manifest, with the network of this cluster.
func flannelManifest(ctx context.Context) (string, error) {
	sources, err := moduleSources(ctx, "flannel", "github.com/flannel-io/flannel")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(sources, "Documentation", "kube-flannel.yml"))
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(text), flannelNetwork) {
		return "", fmt.Errorf("flannel's manifest does not contain %s", flannelNetwork)
	}
	return strings.Replace(string(text), flannelNetwork, flannelDualNetwork, 1), nil
}

// loadFlannel imports images of the names that flannel's manifest has, and gives each
// node the ranges of its pods.
func (c *Cluster) loadFlannel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	manifest, err := flannelManifest(ctx)
	if err != nil {
		return err
	}
	images, err := c.flannelImages(ctx)
	if err != nil {
		return err
	}
	for name, content := range images {
		found := regexp.MustCompile(`image: (\S+/` + name + `:\S+)`).FindStringSubmatch(manifest)
		if found == nil {
			return fmt.Errorf("flannel's manifest has no image %s", name)
		}
		if err := c.loadFileImage(ctx, content, found[1]); err != nil {
			return err
		}
	}
	for _, node := range c.Nodes {
		ranges := fmt.Sprintf(`{"spec": {"podCIDR": %[1]q, "podCIDRs": [%[1]q, %[2]q]}}`, podsIPv4(node.Number), podsIPv6(node.Number))
		if err := c.retryKubectl(ctx, []string{"patch", "node", node.Name, "--patch", ranges}); err != nil { // once the kubelet has registered it
			return err
		}
	}
	return nil
}

// flannelImages returns the images of flannel's manifest, by the last part of the name.
func (c *Cluster) flannelImages(ctx context.Context) (map[string]fileImage, error) {
	const daemon, copier = "/opt/bin/flanneld", "/bin/cp"
	files, err := iptables(ctx)
	if err != nil {
		return nil, err
	}
	plugin, err := libraries(ctx, copier) // with which the manifest installs the plugin
	if err != nil {
		return nil, err
	}
	files[daemon], files["/opt/bin/install-conf"] = filepath.Join(c.Parts, "flanneld"), filepath.Join(c.Parts, "install_conf")
	plugin[copier], plugin["/flannel"] = copier, filepath.Join(c.Parts, "flannel")
	return map[string]fileImage{"flannel": {entrypoint: daemon, files: files}, "flannel-cni-plugin": {entrypoint: copier, files: plugin}}, nil
}

func (c *Cluster) installFlannel(ctx context.Context) error {
	manifest, err := flannelManifest(ctx)
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, manifest, "apply", "--filename=-"); err != nil {
		return err
	}
	return c.waitForFlannel(ctx)
}

// restartFlannel has new pods of flannel's DaemonSet install it again.
func (c *Cluster) restartFlannel(ctx context.Context) error {
	if _, err := c.Kubectl(ctx, "", "--namespace", flannelNamespace, "rollout", "restart", "daemonset/kube-flannel-ds"); err != nil {
		return err
	}
	return c.waitForFlannel(ctx)
}

func (c *Cluster) waitForFlannel(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "", "--namespace", flannelNamespace, "rollout", "status", "daemonset/kube-flannel-ds", "--timeout", Timeout.String())
	return err
}

func (c *Cluster) removeFlannel(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "", "delete", "namespace", flannelNamespace, "--timeout", Timeout.String())
	return err
}
