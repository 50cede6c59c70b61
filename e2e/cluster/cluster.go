// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes on this host: one box with etcd, API
// server, controller manager and scheduler, and a box for each node with
// container runtime, kubelet and kube-proxy. Traffic stays between the boxes. A cluster
// can be left running; Open finds it again by its directory.
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

// Cluster is a cluster that runs. Its exported fields are saved in its directory.
type Cluster struct {
	Dir     string // of everything that it writes
	ID      string // distinguishes its cgroups from those of other clusters on the host
	Parts   string // the directory of its programs
	Primary Primary
	Switch  *Box // the bridge that the others are connected to
	Control *Box
	Nodes   []*Node
}

// Timeout is for waits that take seconds on an idle host. It only decides how
// soon a failure is reported.
const Timeout = 5 * time.Minute

// Start starts a cluster with one node for each runtime; without any, it is an API
// server and its controllers. dir must not contain a
// cluster. The caller stops the cluster that is returned, also with an error.
func Start(ctx context.Context, dir, parts string, primary Primary, runtimes ...Runtime) (c *Cluster, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if parts, err = filepath.Abs(parts); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, stateFile)); err == nil {
		return nil, fmt.Errorf("%s contains a cluster already: stop it first (make cluster-down)", dir)
	}
	c = &Cluster{Dir: dir, Parts: parts, Primary: primary, ID: strings.ToLower(rand.Text()[:8])}
	defer func() { err = errors.Join(err, c.save()) }()
	if err := c.linkPrograms(); err != nil {
		return c, err
	}
	if err := c.buildApps(ctx); err != nil {
		return c, err
	}
	keys, err := newPKI(c.path("pki"))
	if err != nil {
		return c, fmt.Errorf("creating keys: %w", err)
	}
	if err := c.startNetwork(); err != nil {
		return c, err
	}
	if err := c.saveSysctls(); err != nil {
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
	if i, found := installers[primary]; found {
		if err := c.loadInstaller(ctx, i); err != nil {
			return c, err
		}
		if err := c.InstallPrimary(ctx); err != nil {
			return c, err
		}
	}
	return c, c.waitForNodes(ctx)
}

// linkPrograms links the program kubernetes to the names of its parts, and kubectl.
func (c *Cluster) linkPrograms() error {
	if err := os.MkdirAll(c.path("bin"), 0o755); err != nil {
		return err
	}
	links := map[string]string{"kubectl": "kubectl"}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"} {
		links[name] = "kubernetes"
	}
	for name, program := range links {
		if err := os.Symlink(filepath.Join(c.Parts, program), c.path("bin", name)); err != nil && !errors.Is(err, os.ErrExist) {
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

// Open returns the cluster that runs in dir.
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

// Stop kills every process of the cluster and restores what it changed on the
// host. The directory stays, without the saved state.
func (c *Cluster) Stop() error {
	var errs []error
	for _, b := range c.boxes() {
		errs = append(errs, b.stop())
	}
	for _, node := range c.Nodes {
		errs = append(errs, removeCgroups(node.cgroup()))
	}
	return errors.Join(append(errs, restoreSysctls(), os.Remove(c.path(stateFile)))...)
}

// listen opens a port of the host's for the API server.
func listen() (*os.File, string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	defer listener.Close()
	file, err := listener.(*net.TCPListener).File()
	return file, listener.Addr().String(), err
}
