// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes on this machine: etcd, API server,
// controller manager and scheduler in one box, and in a box each, nodes with
// containerd, kubelet and kube-proxy. Traffic stays between the boxes. All of
// it can be left running and be found again by its folder.
package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Cluster is what runs. Its exported fields are written to the folder.
type Cluster struct {
	Dir     string // everything that it writes
	ID      string // tells its cgroups from those of other clusters on this machine
	Parts   string // the folder of its programs
	Switch  *Box   // what the others are connected to
	Control *Box
	Nodes   []*Node
}

// Runtime is which containerd a node runs.
type Runtime string

const (
	// Containerd2 is built from source with the other parts.
	Containerd2 Runtime = "containerd 2"
	// Debian1 is Debian's own package.
	Debian1 Runtime = "containerd 1.6"
)

// Patience is how long is waited for what takes seconds on a machine that has
// nothing else to do. Nothing hangs on it but how soon a failure is told.
const Patience = 3 * time.Minute

// Start starts a cluster with one node for each runtime. dir must not hold one
// already. Also in case of an error, what was started is to be stopped.
func Start(ctx context.Context, dir, parts string, runtimes ...Runtime) (c *Cluster, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if parts, err = filepath.Abs(parts); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, stateFile)); err == nil {
		return nil, fmt.Errorf("%s holds a cluster already: stop it first", dir)
	}
	c = &Cluster{Dir: dir, Parts: parts, ID: strings.ToLower(rand.Text()[:8])}
	defer func() { err = errors.Join(err, c.save()) }()
	if err := c.link(); err != nil {
		return c, err
	}
	if err := c.buildApps(ctx); err != nil {
		return c, err
	}
	keys, err := newPKI(c.path("pki"))
	if err != nil {
		return c, fmt.Errorf("making keys: %w", err)
	}
	if err := c.startNetwork(); err != nil {
		return c, err
	}
	if err := c.borrowSysctls(); err != nil {
		return c, err
	}
	if err := c.startControl(ctx, keys); err != nil {
		return c, err
	}
	for i, runtime := range runtimes {
		node := &Node{Number: i + 1, Runtime: runtime, cluster: c}
		c.Nodes = append(c.Nodes, node)
		if err := node.start(ctx, keys); err != nil {
			return c, err
		}
	}
	return c, c.waitForNodes(ctx)
}

// link gives the parts that are one program the names by which they are called.
func (c *Cluster) link() error {
	if err := os.MkdirAll(c.path("bin"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"} {
		if err := os.Symlink(filepath.Join(c.Parts, "kubernetes"), c.path("bin", name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

const stateFile = "cluster.json"

func (c *Cluster) save() error {
	content, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(c.path(stateFile), content, 0o600)
}

// Open finds the cluster that runs in dir.
func Open(dir string) (*Cluster, error) {
	content, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	c := &Cluster{}
	if err := json.Unmarshal(content, c); err != nil {
		return nil, fmt.Errorf("reading %s: %w", stateFile, err)
	}
	for _, b := range c.boxes() {
		b.dir = c.path(b.Name)
	}
	for _, node := range c.Nodes {
		node.cluster = c
	}
	return c, nil
}

func (c *Cluster) boxes() []*Box {
	var boxes []*Box
	for _, node := range c.Nodes {
		boxes = append(boxes, node.Box)
	}
	boxes = append(boxes, c.Control, c.Switch)
	return slices.DeleteFunc(boxes, func(b *Box) bool { return b == nil }) // where a start failed
}

// Stop ends every process of the cluster and takes back what it changed on
// this machine. The folder stays, but for its state.
func (c *Cluster) Stop() error {
	var errs []error
	for _, b := range c.boxes() {
		errs = append(errs, b.stop())
	}
	for _, node := range c.Nodes {
		errs = append(errs, removeCgroups(node.cgroup()))
	}
	return errors.Join(append(errs, returnSysctls(), os.Remove(c.path(stateFile)))...)
}

// listen opens a port of this machine's for the API server.
func listen() (*os.File, string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	return file, listener.Addr().String(), err
}
