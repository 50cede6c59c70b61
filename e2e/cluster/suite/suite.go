// SPDX-License-Identifier: Apache-2.0

// Package suite is what the tests on a cluster share: the cluster itself, the
// chart that is installed on it, namespaces and pods of one test, and what is
// expected of them.
package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

var (
	running = flag.String("cluster", "", "use the cluster in this directory (make cluster) and leave it running; by default, start one for these tests")
	control = flag.Bool("control", false, "start an API server and no nodes: enough for the tests of admission policies")
	primary = flag.String("primary", string(cluster.Ptp), "the primary plugin of the cluster that these tests start: ptp, or flannel or kube-router with its own installer")
	keep    = flag.Bool("keep", false, "keep the cluster's directory, with all logs")
)

// parts is where `make parts` puts the cluster's programs, seen from a package
// of tests.
const parts = "../../../bin/parts"

// release is the image that the chart is installed with.
const release = "v1"

// Suite is the cluster that the tests of one package use one after the other.
// Each test finds it healthy and leaves it healthy.
type Suite struct {
	*cluster.Cluster

	// Istio has istiod inject pods. By default, a stand-in for its injector does.
	Istio bool

	// Installed are the chart's settings at its last installation; nil while it
	// is not installed, or in a state that no test may rely on.
	Installed  []string
	installing sync.Mutex
}

// Main runs a package's tests on a cluster and returns the exit code.
func (c *Suite) Main(m *testing.M) int {
	flag.Parse()
	code, err := c.run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func (c *Suite) run(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 || testing.Short() {
		return m.Run(), nil // each test says what it lacks
	}
	if *running != "" {
		if c.Cluster, err = cluster.Open(*running); err != nil {
			return 1, err
		}
		c.Installed = []string{"image.tag=" + release} // as make cluster does
		if c.Istio {
			if err := c.startIstio(context.Background()); err != nil {
				return 1, err
			}
		}
		return m.Run(), nil
	}
	if _, err := os.Stat(filepath.Join(parts, "kubernetes")); err != nil {
		return 1, errors.New("the cluster's programs are not built: run make parts")
	}
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return 1, err
	}
	ctx := context.Background()
	started := time.Now()
	if err = c.start(ctx, dir); err == nil {
		fmt.Printf("%d nodes, ready after %s\n", len(c.Nodes), time.Since(started).Round(100*time.Millisecond))
		code = m.Run()
		err = c.waitForNoPods(ctx)
	}
	if c.Cluster != nil {
		err = errors.Join(err, c.Stop())
	}
	if *keep || err != nil {
		fmt.Println("logs are in", dir)
		return code, err
	}
	return code, os.RemoveAll(dir)
}

func (c *Suite) start(ctx context.Context, dir string) (err error) {
	runtimes := cluster.Runtimes
	switch {
	case *control:
		runtimes = nil
	case c.Istio: // whose own programs fill the machine
		runtimes = []cluster.Runtime{cluster.Containerd2, cluster.Debian1}
	case cluster.Primary(*primary) == cluster.KubeRouter: // CRI-O starts its privileged container only where no capability is missing
		runtimes = []cluster.Runtime{cluster.Containerd2, cluster.Debian1}
	}
	if c.Cluster, err = cluster.Start(ctx, dir, parts, cluster.Primary(*primary), runtimes...); err != nil {
		return err
	}
	if c.Istio {
		return errors.Join(c.LoadAgentImage(ctx, release), c.startIstio(ctx))
	}
	if err := c.StartInjector(ctx); err != nil || *control {
		return err
	}
	return c.LoadAgentImage(ctx, release)
}

// DefaultRevision is the control plane that injects pods of namespaces with the label
// cluster.Injected.
var DefaultRevision = cluster.Revision{Address: "10.96.0.15"}

// startIstio installs istiod, in place of the stand-in for its injector if that runs. Its
// controller of the startup taint watches the agents of this project.
func (c *Suite) startIstio(ctx context.Context) error {
	if _, err := c.Kubectl(ctx, "", "delete", "mutatingwebhookconfiguration", "injector", "--ignore-not-found"); err != nil {
		return err
	}
	if err := c.LoadIstioImages(ctx, "pilot", "proxyv2", "install-cni"); err != nil {
		return err
	}
	return c.InstallIstio(ctx, DefaultRevision, IstiodSettings()...)
}

// IstiodSettings returns the settings of istiod's chart in these tests, with others.
func IstiodSettings(others ...string) []string {
	return append([]string{"taint.enabled=true", "taint.namespace=" + cluster.Namespace}, others...)
}

// waitForNoPods waits until every pod of the tests has ended, since DEL never fails.
func (c *Suite) waitForNoPods(ctx context.Context) error {
	var left string
	for deadline := time.Now().Add(cluster.Timeout); time.Now().Before(deadline); time.Sleep(time.Second) {
		out, err := c.Kubectl(ctx, "", "get", "pods", "--all-namespaces", "--no-headers")
		if err != nil {
			return err
		}
		if left = strings.Join(slices.DeleteFunc(strings.Split(out, "\n"), func(pod string) bool { return !strings.HasPrefix(pod, "test") }), "\n"); left == "" {
			return nil
		}
	}
	return fmt.Errorf("pods still there after %s:\n%s", cluster.Timeout, left)
}

// MustKubectl runs kubectl, in cleanups too, and returns what it prints.
func (c *Suite) MustKubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(context.WithoutCancel(t.Context()), "", args...)
	lab.Check(t, err)
	return out
}
