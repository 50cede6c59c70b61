// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// installer is how a DaemonSet installs a primary: its pods write the list and the plugins when
// they start, after the kubelet, at each boot.
type installer struct {
	list, network        string // the list's name in the network directory, and the network's name in it
	namespace, daemonSet string
	plugins              []string

	part, module, manifest string   // the manifest's path in the module of a part
	changes                []string // pairs of a text of the manifest, and the one that replaces it
	images                 func(ctx context.Context, parts string) (map[string]fileImage, error)
}

var bridged = []string{"loopback", "bridge", "host-local", "portmap"}

var installers = map[Primary]installer{
	Flannel: {
		list: "10-flannel.conflist", network: "cbr0", namespace: "kube-flannel", daemonSet: "kube-flannel-ds", plugins: bridged,
		part: "flannel", module: "github.com/flannel-io/flannel", manifest: "Documentation/kube-flannel.yml",
		changes: []string{`"Network": "10.244.0.0/16",`, `"Network": "10.88.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:88::/32",`},
		images:  flannelImages,
	},
	// It also writes the node's ranges into its list, in place, and leaves other plugins in it.
	KubeRouter: {
		list: "10-kuberouter.conflist", network: "mynet", namespace: "kube-system", daemonSet: "kube-router", plugins: bridged,
		part: "kube-router", module: "github.com/cloudnativelabs/kube-router/v2", manifest: "daemonset/kubeadm-kuberouter.yaml",
		changes: []string{
			"kube-router\n        imagePullPolicy: Always", "kube-router:test\n        imagePullPolicy: Never",
			`"bridge":"kube-bridge",`, `"bridge":"kube-bridge", "hairpinMode":true,`, // for kube-proxy, in place of its own proxy
			"- --run-service-proxy=false", "- --run-service-proxy=false\n        - --enable-ipv6=true",
		},
		images: kubeRouterImages,
	},
}

// text returns the primary's own manifest, with what this cluster needs.
func (i installer) text(ctx context.Context) (string, error) {
	sources, err := moduleSources(ctx, i.part, i.module)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(sources, i.manifest))
	if err != nil {
		return "", err
	}
	for n := 0; n < len(i.changes); n += 2 {
		if !strings.Contains(string(text), i.changes[n]) {
			return "", fmt.Errorf("%s does not contain %s", i.manifest, i.changes[n])
		}
	}
	return strings.NewReplacer(i.changes...).Replace(string(text)), nil
}

// loadInstaller imports images of the names that the manifest has, and gives each node the ranges
// of its pods.
func (c *Cluster) loadInstaller(ctx context.Context, i installer) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	manifest, err := i.text(ctx)
	if err != nil {
		return err
	}
	images, err := i.images(ctx, c.Parts)
	if err != nil {
		return err
	}
	for name, content := range images {
		found := regexp.MustCompile(`image: (\S+/` + name + `:\S+)`).FindStringSubmatch(manifest)
		if found == nil {
			return fmt.Errorf("%s has no image %s", i.manifest, name)
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
func flannelImages(ctx context.Context, parts string) (map[string]fileImage, error) {
	const daemon, copier = "/opt/bin/flanneld", "/bin/cp"
	files, err := iptables(ctx)
	if err != nil {
		return nil, err
	}
	plugin, err := libraries(ctx, copier) // with which the manifest installs the plugin
	if err != nil {
		return nil, err
	}
	files[daemon], files["/opt/bin/install-conf"] = filepath.Join(parts, "flanneld"), filepath.Join(parts, "install_conf")
	plugin[copier], plugin["/flannel"] = copier, filepath.Join(parts, "flannel")
	return map[string]fileImage{"flannel": {entrypoint: daemon, files: files}, "flannel-cni-plugin": {entrypoint: copier, files: plugin}}, nil
}

func kubeRouterImages(ctx context.Context, parts string) (map[string]fileImage, error) {
	const daemon = "/usr/local/bin/kube-router"
	files, err := iptables(ctx)
	if err != nil {
		return nil, err
	}
	for _, program := range []string{"/usr/sbin/ipset", "/sbin/ip", "/bin/sh", "/bin/cp", "/bin/mv", "/bin/rm"} {
		libraries, err := libraries(ctx, program)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, libraries)
		files[program] = program
	}
	files[daemon] = filepath.Join(parts, "kube-router")
	return map[string]fileImage{"kube-router": {entrypoint: daemon, files: files}}, nil
}

func (c *Cluster) applyInstaller(ctx context.Context, i installer) error {
	manifest, err := i.text(ctx)
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, manifest, "apply", "--filename=-"); err != nil {
		return err
	}
	return c.waitForInstaller(ctx, i)
}

// restartInstaller has new pods of the DaemonSet install the primary again.
func (c *Cluster) restartInstaller(ctx context.Context, i installer) error {
	if _, err := c.Kubectl(ctx, "", "--namespace", i.namespace, "rollout", "restart", "daemonset/"+i.daemonSet); err != nil {
		return err
	}
	return c.waitForInstaller(ctx, i)
}

func (c *Cluster) waitForInstaller(ctx context.Context, i installer) error {
	_, err := c.Kubectl(ctx, "", "--namespace", i.namespace, "rollout", "status", "daemonset/"+i.daemonSet, "--timeout", Timeout.String())
	return err
}

func (c *Cluster) removeInstaller(ctx context.Context, i installer) error {
	manifest, err := i.text(ctx)
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, manifest, "delete", "--filename=-", "--timeout", Timeout.String())
	return err
}
