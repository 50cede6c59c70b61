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

// Caller calls the plugin that is installed on a node, as the node's runtime does: by
// libcni, with the entry that is there at that moment and the identity of a pod that runs
// on the node. It has network namespaces of its own, and uses them again.
type Caller struct {
	node *cluster.Node
	pod  *corev1.Pod
	cni  *libcni.CNIConfig
	idle chan string // names of network namespaces
}

// Call is what became of an ADD and the DEL after it.
type Call struct {
	Took   time.Duration // of ADD
	Digest string        // of the rules after ADD
	Err    error         // of ADD or DEL, or that DEL left rules
}

// callsAtOnce is how many calls of a Caller run at once, at most: with more, a slow machine
// has no time left for what the test waits for.
const callsAtOnce = 4

// namespacePrefix distinguishes the namespaces from those of the runtime.
const namespacePrefix = "caller-"

// interfaces are what a primary plugin creates, with a peer in the same namespace.
const interfaces = `link add eth0 type veth peer name peer
address add 10.88.9.2/24 dev eth0
address add fd00:88:9::2/64 dev eth0 nodad
link set peer up
link set eth0 up
`

// NewCaller returns a Caller whose namespaces are deleted with the test.
func NewCaller(t *testing.T, node *cluster.Node, pod *corev1.Pod) *Caller {
	t.Helper()
	t.Cleanup(func() {
		const script = "for path in /run/netns/" + namespacePrefix + "*; do ip netns delete ${path##*/}; done"
		if out, err := node.Command(context.Background(), "sh", "-c", script).CombinedOutput(); err != nil {
			t.Errorf("deleting network namespaces: %v: %s", err, out)
		}
	})
	c := &Caller{
		node: node, pod: pod, idle: make(chan string, callsAtOnce),
		cni: libcni.NewCNIConfigWithCacheDir([]string{"/opt/cni/bin"}, t.TempDir(), &nodeExec{node: node}),
	}
	for i := range callsAtOnce {
		name := fmt.Sprintf("%s%d", namespacePrefix, i)
		create := node.Command(t.Context(), "sh", "-c", "ip netns add "+name+" && ip -netns "+name+" -batch -")
		create.Stdin = strings.NewReader(interfaces)
		if out, err := create.CombinedOutput(); err != nil {
			t.Fatalf("creating a network namespace: %v: %s", err, out)
		}
		c.idle <- name
	}
	return c
}

// Call calls ADD and DEL once. It waits for an idle namespace.
func (c *Caller) Call(ctx context.Context) (call Call) {
	ctx, cancel := context.WithTimeout(ctx, cluster.Timeout)
	defer cancel()
	name := <-c.idle
	defer func() { c.idle <- name }()
	list, err := c.entry()
	if err != nil {
		return Call{Err: err}
	}
	conf := &libcni.RuntimeConf{
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
	if _, err := c.cni.AddNetworkList(ctx, list, conf); err != nil {
		call.Err = fmt.Errorf("ADD: %w", err)
	}
	call.Took = time.Since(began)
	call.Digest, err = digestAt(ctx, c.node.Path(conf.NetNS))
	call.Err = errors.Join(call.Err, err)
	if err := c.cni.DelNetworkList(ctx, list, conf); err != nil {
		call.Err = errors.Join(call.Err, fmt.Errorf("DEL: %w", err))
	}
	left, err := digestAt(ctx, c.node.Path(conf.NetNS))
	if err == nil && left != "" {
		err = errors.New("DEL succeeded, and left rules")
	}
	call.Err = errors.Join(call.Err, err)
	return call
}

// entry returns the list that the node's runtime would load, with our entry alone.
func (c *Caller) entry() (*libcni.NetworkConfigList, error) {
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

// Every calls ADD and DEL at an interval, while a namespace is idle. The function that it
// returns ends this, waits for the last call, and logs how many there were.
func (c *Caller) Every(t *testing.T, interval time.Duration) (end func() []Call) {
	ctx, stop := context.WithCancel(t.Context())
	began, tick := time.Now(), time.NewTicker(interval)
	var mu sync.Mutex
	var calls []Call
	var workers sync.WaitGroup
	for range callsAtOnce {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				call := c.Call(context.WithoutCancel(ctx))
				mu.Lock()
				calls = append(calls, call)
				mu.Unlock()
			}
		})
	}
	return func() []Call {
		stop()
		workers.Wait()
		tick.Stop()
		took, longest := time.Since(began), time.Duration(0)
		for _, call := range calls {
			longest = max(longest, call.Took)
		}
		t.Logf("%s: %d ADDs and DELs in %s, %.1f a second; the longest ADD took %s",
			c.node.Name, len(calls), took.Round(time.Second), float64(len(calls))/took.Seconds(), longest.Round(time.Millisecond))
		return calls
	}
}
