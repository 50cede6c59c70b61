// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
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

// c is the cluster that all tests share, one after the other. Each of them
// finds it healthy and leaves it so; what is installed, install says.
var c *cluster.Cluster

var (
	running = flag.String("cluster", "", "the folder of a cluster that runs already (make cluster), to be used and left running")
	keep    = flag.Bool("keep", false, "leave the folder of the cluster, with all logs")
)

// parts is where `make parts` puts the cluster's programs.
const parts = "../../bin/parts"

// release is the image that the chart is installed with.
const release = "v1"

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := startAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func startAndRun(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 || testing.Short() {
		return m.Run(), nil // every test says what it lacks
	}
	ctx := context.Background()
	if *running != "" {
		if c, err = cluster.Open(*running); err != nil {
			return 1, err
		}
		installed = []string{"image.tag=" + release} // as make cluster does
		return m.Run(), nil
	}
	if _, err := os.Stat(filepath.Join(parts, "kubernetes")); err != nil {
		return 1, fmt.Errorf("the cluster's programs are not built: run make parts")
	}
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return 1, err
	}
	started := time.Now()
	c, err = cluster.Start(ctx, dir, parts, cluster.Containerd2, cluster.Debian1)
	if err == nil {
		err = c.StartInjector(ctx)
	}
	if err == nil {
		err = c.Bring(ctx, release)
	}
	fmt.Printf("two nodes, ready after %s\n", time.Since(started).Round(100*time.Millisecond))
	if err == nil {
		code = m.Run()
		err = allEnded(ctx)
	}
	if stopErr := c.Stop(); stopErr != nil {
		return 1, stopErr
	}
	if *keep || err != nil {
		fmt.Println("logs are in", dir)
		return code, err
	}
	return code, os.RemoveAll(dir)
}

// allEnded waits until every pod of a test has gone: DEL never fails.
func allEnded(ctx context.Context) error {
	var left string
	for deadline := time.Now().Add(cluster.Patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		out, err := c.Kubectl(ctx, "", "get", "pods", "--all-namespaces", "--no-headers")
		if err != nil {
			return err
		}
		if left = strings.Join(slices.DeleteFunc(strings.Split(out, "\n"), func(pod string) bool { return !strings.HasPrefix(pod, "test") }), "\n"); left == "" {
			return nil
		}
	}
	return fmt.Errorf("pods don't end:\n%s", left)
}

// installed are the settings that the chart is installed with; nil while it is not.
var (
	installing sync.Mutex
	installed  []string
)

// install has the chart installed with these settings and no others. Tests
// that run in parallel all want the defaults.
func install(t *testing.T, settings ...string) {
	t.Helper()
	requireCluster(t)
	installing.Lock()
	defer installing.Unlock()
	settings = append([]string{"image.tag=" + release}, settings...)
	if slices.Equal(installed, settings) {
		return
	}
	installed = nil
	check(t, c.Install(context.WithoutCancel(t.Context()), settings...))
	installed = settings
}

// uninstall takes the chart and all that it left out of the cluster.
func uninstall(t *testing.T) {
	t.Helper()
	requireCluster(t)
	if installed == nil {
		return
	}
	ctx := context.WithoutCancel(t.Context()) // also when the test is over
	check(t, c.Install(ctx, append(installed, "state=absent", "force=true")...))
	installed = nil
	check(t, c.Uninstall(ctx))
}

func requireCluster(t *testing.T) {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequireTime(t)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience is for kubectl.
var patience = "--timeout=" + cluster.Patience.String()

// eventually tries until it succeeds, or patience is over.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(cluster.Patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("not within %s: %v", cluster.Patience, err)
}
