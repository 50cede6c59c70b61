// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// istioCNI is the release and the chart of Istio's CNI plugin.
const istioCNI = "istio-cni"

// InstallIstioCNI installs Istio's CNI plugin by its own chart, or upgrades it, with
// settings (key=value), and waits until its agents are ready.
func (c *Cluster) InstallIstioCNI(ctx context.Context, settings ...string) error {
	if err := c.installIstioChart(ctx, istioCNI, istioCNI, settings...); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "", "--namespace", IstioNamespace, "rollout", "status", "daemonset/istio-cni-node", "--timeout", Timeout.String())
	return err
}

// UninstallIstioCNI removes it, and waits until its agents have cleaned their nodes.
// Where it is not installed, this is no error.
func (c *Cluster) UninstallIstioCNI(ctx context.Context) error {
	if _, err := c.Helm(ctx, "uninstall", istioCNI, "--namespace", IstioNamespace, "--ignore-not-found", "--wait", "--timeout", Timeout.String()); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "", "--namespace", IstioNamespace, "wait", "--for=delete", "pod", "--selector=k8s-app=istio-cni-node", "--timeout", Timeout.String())
	return err
}

// iptables returns the files of an image with iptables: the program of this host under
// its names, its extensions and its libraries.
func iptables(ctx context.Context) (map[string]string, error) {
	program, err := filepath.EvalSymlinks("/usr/sbin/iptables-nft")
	if err != nil {
		return nil, fmt.Errorf("finding iptables: %w", err)
	}
	files, err := libraries(ctx, program)
	if err != nil {
		return nil, err
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return nil, err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, command := range []string{"", "-save", "-restore"} {
			files["/usr/sbin/"+family+command] = program
		}
	}
	for _, extension := range extensions {
		files[extension] = extension
	}
	return files, nil
}

// libraries returns the files of an image with the libraries of a program of this host.
func libraries(ctx context.Context, program string) (map[string]string, error) {
	list, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("finding the libraries of %s: %w", program, err)
	}
	files := map[string]string{}
	for word := range strings.FieldsSeq(string(list)) {
		if strings.HasPrefix(word, "/") {
			files[word] = word
		}
	}
	return files, nil
}
