// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path"
)

// Primary is the plugin that gives pods their network.
type Primary string

const (
	// Ptp has its list on a node before the first boot.
	Ptp Primary = "ptp"
	// Flannel writes its list and its plugin at each boot.
	Flannel Primary = "flannel"
	// KubeRouter writes its list if it is missing, and the node's ranges into it.
	KubeRouter Primary = "kube-router"
)

// List returns the path of the primary's list on a node.
func (p Primary) List() string {
	return path.Join("/etc/cni/net.d", cmp.Or(installers[p].list, NetworkConf))
}

// DropIn returns the path of a drop-in for the primary's network.
func (p Primary) DropIn(name string) string {
	return path.Join(path.Dir(p.List()), cmp.Or(installers[p].network, "podnet"), name)
}

// plugins are those that a node has before any installer runs.
func (p Primary) plugins() []string {
	if p == Ptp {
		return []string{"loopback", "ptp", "host-local", "portmap"}
	}
	return installers[p].plugins
}

// InstallPrimary has the primary's installer write its list on all nodes.
func (c *Cluster) InstallPrimary(ctx context.Context) error {
	if i, found := installers[c.Primary]; found {
		return c.applyInstaller(ctx, i)
	}
	var errs []error
	for _, node := range c.Nodes {
		errs = append(errs, replaceFile(node.Path(c.Primary.List()), []byte(node.PrimaryList())))
	}
	return errors.Join(errs...)
}

// ReinstallPrimary has the primary's installer write its list again.
func (c *Cluster) ReinstallPrimary(ctx context.Context) error {
	if i, found := installers[c.Primary]; found {
		return c.restartInstaller(ctx, i)
	}
	return c.InstallPrimary(ctx)
}

// RemovePrimary removes the primary's installer and its list. Pods can still end.
func (c *Cluster) RemovePrimary(ctx context.Context) error {
	var errs []error
	if i, found := installers[c.Primary]; found {
		errs = append(errs, c.removeInstaller(ctx, i))
	}
	for _, node := range c.Nodes {
		errs = append(errs, os.Remove(node.Path(c.Primary.List())))
	}
	return errors.Join(errs...)
}
