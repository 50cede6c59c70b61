// SPDX-License-Identifier: Apache-2.0

package cluster

import (
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
	// Flannel has a DaemonSet, whose pods write its list and its plugin when they start:
	// after the kubelet, at each boot.
	Flannel Primary = "flannel"
)

// List returns the path of the primary's list on a node.
func (p Primary) List() string {
	if p == Flannel {
		return "/etc/cni/net.d/10-flannel.conflist"
	}
	return "/etc/cni/net.d/" + NetworkConf
}

// DropIn returns the path of a drop-in for the primary's network.
func (p Primary) DropIn(name string) string {
	network := "podnet"
	if p == Flannel {
		network = "cbr0"
	}
	return path.Join(path.Dir(p.List()), network, name)
}

// plugins are those that a node has before any installer runs.
func (p Primary) plugins() []string {
	if p == Flannel {
		return []string{"loopback", "bridge", "host-local", "portmap"}
	}
	return []string{"loopback", "ptp", "host-local", "portmap"}
}

// InstallPrimary has the primary's installer write its list on all nodes.
func (c *Cluster) InstallPrimary(ctx context.Context) error {
	if c.Primary == Flannel {
		return c.installFlannel(ctx)
	}
	var errs []error
	for _, node := range c.Nodes {
		errs = append(errs, replaceFile(node.Path(c.Primary.List()), []byte(node.PrimaryList())))
	}
	return errors.Join(errs...)
}

// ReinstallPrimary has the primary's installer write its list again.
func (c *Cluster) ReinstallPrimary(ctx context.Context) error {
	if c.Primary == Flannel {
		return c.restartFlannel(ctx)
	}
	return c.InstallPrimary(ctx)
}

// RemovePrimary removes the primary's installer and its list. Pods can still end.
func (c *Cluster) RemovePrimary(ctx context.Context) error {
	var errs []error
	if c.Primary == Flannel {
		errs = append(errs, c.removeFlannel(ctx))
	}
	for _, node := range c.Nodes {
		errs = append(errs, os.Remove(node.Path(c.Primary.List())))
	}
	return errors.Join(errs...)
}
