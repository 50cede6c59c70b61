// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
)

// Node is a box with a container runtime, kubelet and kube-proxy. Its directories have
// the usual paths: /etc/cni/net.d, /opt/cni/bin, /run/containerd or /run/crio.
type Node struct {
	*Box
	Number  int
	Runtime Runtime

	cluster *Cluster
}

// start creates a node's disk and boots the node.
func (n *Node) start(ctx context.Context, keys *pki) error {
	name := nodeName(n.Number)
	if err := keys.issue(name, "system:node:"+name, []string{"system:nodes"}, []string{name, nodeIPv4(n.Number), nodeIPv6(n.Number)}); err != nil {
		return err
	}
	if err := keys.kubeconfig(name, "https://"+controlIPv4+":6443"); err != nil {
		return err
	}
	if err := n.configure(ctx); err != nil {
		return err
	}
	return n.boot(ctx)
}

// boot starts the box and its daemons. Files below /etc, /opt and /var/lib are
// those of the last boot.
func (n *Node) boot(ctx context.Context) error {
	var err error
	if n.Box, err = startBox(nodeName(n.Number), n.cluster.Dir, nil, ""); err != nil {
		return err
	}
	if err := makeCgroups(n.cgroup()); err != nil {
		return err
	}
	if err := n.connect(); err != nil {
		return err
	}
	if err := n.StartRuntime(ctx); err != nil {
		return err
	}
	return errors.Join(n.StartKubelet(), n.StartProxy())
}

// connect plugs the node in and adds routes on the node and on the control box.
func (n *Node) connect() error {
	const nodes = 3 // routes to a node that is not there do no harm
	if err := n.cluster.plug(n.Box, nodeIPv4(n.Number)+"/24", nodeIPv6(n.Number)+"/64"); err != nil {
		return err
	}
	host, err := n.Host()
	if err != nil {
		return err
	}
	defer host.NetNS.Close()
	err = errors.Join(host.AddDefaultRoute(controlIPv4), host.AddDefaultRoute(controlIPv6))
	if n.cluster.Primary != Ptp { // which connects the nodes' pods
		return err
	}
	return errors.Join(err, route(n.Box, n.Number, nodes), route(n.cluster.Control, 0, nodes))
}

// StartKubelet starts the kubelet; the node is ready some time later.
func (n *Node) StartKubelet() error {
	return n.startDaemon(n.cluster.path("bin"), "kubelet",
		"--config="+filepath.Join(n.dir, "kubelet.yaml"), "--kubeconfig="+n.cluster.path("pki", n.Name+".kubeconfig"),
		"--hostname-override="+n.Name, "--node-ip="+nodeIPv4(n.Number)+","+nodeIPv6(n.Number))
}

// StartProxy starts kube-proxy.
func (n *Node) StartProxy() error {
	return n.startDaemon(n.cluster.path("bin"), "kube-proxy", "--config="+filepath.Join(n.dir, "proxy.yaml"))
}

// StopKubelet stops the kubelet; pods keep running.
func (n *Node) StopKubelet() error { return n.stopDaemon("kubelet", syscall.SIGTERM) }

// Halt kills all processes of the node at once. Unlike a power cut, it keeps what they
// wrote and did not sync.
func (n *Node) Halt() error { return errors.Join(n.stop(), removeCgroups(n.cgroup())) }

// Boot starts a halted node: its disk is unchanged, its /run is empty.
func (n *Node) Boot(ctx context.Context) error {
	if err := n.boot(ctx); err != nil {
		return err
	}
	return n.cluster.save()
}

// Disk returns the host's path of a file that the node has written below /etc,
// also while the node is halted.
func (n *Node) Disk(path string) string { return filepath.Join(n.dir, "disk", path) }

func nodeName(number int) string { return fmt.Sprintf("node%d", number) }

// cgroup returns the root cgroup of the node's pods.
func (n *Node) cgroup() string { return "capture-cni-" + n.cluster.ID + "-" + nodeName(n.Number) }
