// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// Cycles calls the installed plugin of a node by libcni, with the entry that is there at
// that moment: ADD with the identity of a pod that runs on the node, and DEL. It reuses its
// network namespaces.
type Cycles struct {
	node *cluster.Node
	pod  *corev1.Pod
	cni  *libcni.CNIConfig
	idle chan string // names of network namespaces

	mu       sync.Mutex
	digests  map[string]int // of the rules after ADD
	done     int
	failures []error
	longest  time.Duration // of an ADD
	began    time.Time

	stop  context.CancelFunc
	calls sync.WaitGroup
}

// namespacesPerNode is how many cycles run on a node at once, at most: with more, a slow
// machine has no time left for what the test waits for.
const namespacesPerNode = 4

// StartCycles begins a cycle at an interval, while a namespace is idle, until End or until
// the test ends.
func StartCycles(t *testing.T, node *cluster.Node, pod *corev1.Pod, interval time.Duration) *Cycles {
	t.Helper()
	deleteNamespaces(t, node)
	ctx, stop := context.WithCancel(t.Context())
	c := &Cycles{
		node: node, pod: pod, stop: stop, digests: map[string]int{}, began: time.Now(), idle: make(chan string, namespacesPerNode),
		cni: libcni.NewCNIConfigWithCacheDir([]string{"/opt/cni/bin"}, t.TempDir(), &nodeExec{node: node}),
	}
	for i := range namespacesPerNode {
		name := fmt.Sprintf("%scycle%d", namespacePrefix, i)
		create := node.Command(ctx, "sh", "-c", "ip netns add "+name+" && ip -netns "+name+" -batch -")
		create.Stdin = strings.NewReader(interfaces)
		if out, err := create.CombinedOutput(); err != nil {
			t.Fatalf("creating a network namespace: %v: %s", err, out)
		}
		c.idle <- name
	}
	c.calls.Go(func() { c.begin(ctx, interval) })
	return c
}

func (c *Cycles) begin(ctx context.Context, interval time.Duration) {
	for tick := time.NewTicker(interval); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		name := <-c.idle
		c.calls.Go(func() {
			defer func() { c.idle <- name }()
			if err := c.cycle(context.WithoutCancel(ctx), name); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.failures = append(c.failures, err)
			}
		})
	}
}

// cycle calls ADD and DEL, and reads the rules after each.
func (c *Cycles) cycle(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Timeout)
	defer cancel()
	list, err := c.entry()
	if err != nil {
		return err
	}
	call := &libcni.RuntimeConf{
		ContainerID: name, NetNS: "/run/netns/" + name, IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_INFRA_CONTAINER_ID", name},
			{"K8S_POD_NAMESPACE", c.pod.Namespace},
			{"K8S_POD_NAME", c.pod.Name},
			{"K8S_POD_UID", string(c.pod.UID)},
		},
		CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": c.pod.Annotations},
	}
	began := time.Now()
	if _, err := c.cni.AddNetworkList(ctx, list, call); err != nil {
		return fmt.Errorf("ADD: %w", err)
	}
	took := time.Since(began)
	captured, err := digestAt(ctx, c.node.Path(call.NetNS))
	if err == nil && captured == "" {
		err = errors.New("ADD succeeded, and there are no rules")
	}
	if err != nil {
		return err
	}
	c.count(captured, took)
	if err := c.cni.DelNetworkList(ctx, list, call); err != nil {
		return fmt.Errorf("DEL: %w", err)
	}
	left, err := digestAt(ctx, c.node.Path(call.NetNS))
	if err == nil && left != "" {
		err = errors.New("DEL succeeded, and left rules")
	}
	return err
}

// entry returns the list that the node's runtime would load, with our entry alone.
func (c *Cycles) entry() (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromFile(c.node.Path("/etc/cni/net.d/" + cluster.NetworkConf))
	if err != nil {
		return nil, err
	}
	list.Plugins = slices.DeleteFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Type != "capture-cni" })
	if len(list.Plugins) != 1 {
		return nil, fmt.Errorf("the list has %d entries of ours, want one", len(list.Plugins))
	}
	return list, nil
}

func (c *Cycles) count(digest string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.digests[digest]++
	c.done++
	c.longest = max(c.longest, took)
}

// End waits for the last cycles, fails the test if one of them failed, and returns how many
// ADDs left which rules.
func (c *Cycles) End(t *testing.T) (digests map[string]int) {
	t.Helper()
	c.stop()
	c.calls.Wait()
	took := time.Since(c.began)
	t.Logf("%s: %d ADDs and DELs in %s, %.1f a second; the longest ADD took %s",
		c.node.Name, c.done, took.Round(time.Second), float64(c.done)/took.Seconds(), c.longest.Round(time.Millisecond))
	if len(c.failures) > 0 {
		t.Errorf("%s: %d cycles failed; the first ones: %v", c.node.Name, len(c.failures), errors.Join(c.failures[:min(len(c.failures), 5)]...))
	}
	return c.digests
}
