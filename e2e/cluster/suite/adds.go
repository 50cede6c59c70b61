// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// DropIn is the plugin's entry on a node with containerd 2.
const DropIn = "/etc/cni/net.d/podnet/capture-cni.conf"

// Adder calls the installed plugin of a node as its runtime does, with the identity of
// a pod that runs there, each time in a new network namespace. The node's runtime has
// to read drop-ins.
type Adder struct {
	node *cluster.Node
	pod  *corev1.Pod
}

// Add is what became of one call.
type Add struct {
	Took     time.Duration
	Err      error // the plugin's, or what is wrong with the rules that it left
	Captured bool  // by exactly the rules that the pod asks for
}

// namespacePrefix distinguishes the namespaces from those of the runtime.
const namespacePrefix = "adder-"

// interfaces are what a primary plugin creates, with a peer in the same namespace.
const interfaces = `link add eth0 type veth peer name peer
address add 10.88.9.2/24 dev eth0
address add fd00:88:9::2/64 dev eth0 nodad
link set peer up
link set eth0 up
`

// NewAdder returns an Adder whose namespaces are deleted with the test.
func NewAdder(t *testing.T, node *cluster.Node, pod *corev1.Pod) *Adder {
	t.Helper()
	deleteNamespaces(t, node)
	return &Adder{node, pod}
}

// deleteNamespaces deletes the network namespaces with the test.
func deleteNamespaces(t *testing.T, node *cluster.Node) {
	t.Cleanup(func() {
		const script = "for path in /run/netns/" + namespacePrefix + "*; do ip netns delete ${path##*/}; done"
		if out, err := node.Command(context.Background(), "sh", "-c", script).CombinedOutput(); err != nil {
			t.Errorf("deleting network namespaces: %v: %s", err, out)
		}
	})
}

// Add calls the plugin once. The error is of the call itself.
func (a *Adder) Add(ctx context.Context) (Add, error) {
	name := namespacePrefix + rand.Text()
	path := "/run/netns/" + name
	stdin, err := a.stdin(path)
	if err != nil {
		return Add{}, err
	}
	create := a.node.Command(ctx, "sh", "-c", "ip netns add "+name+" && ip -netns "+name+" -batch -")
	create.Stdin = strings.NewReader(interfaces)
	if out, err := create.CombinedOutput(); err != nil {
		return Add{}, fmt.Errorf("creating a network namespace: %w: %s", err, out)
	}
	command := a.node.Command(ctx, "/opt/cni/bin/capture-cni")
	command.Stdin = stdin
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=ADD", "CNI_CONTAINERID=" + name, "CNI_IFNAME=eth0", "CNI_NETNS=" + path, "CNI_PATH=/opt/cni/bin",
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", name, a.pod.Namespace, a.pod.Name, a.pod.UID),
	}
	began := time.Now()
	out, err := command.CombinedOutput()
	add := Add{Took: time.Since(began)}
	if err != nil {
		add.Err = fmt.Errorf("%w: %s", err, out)
		return add, ctx.Err()
	}
	netns, err := ns.GetNS(a.node.Path(path))
	if err != nil {
		return add, err
	}
	defer netns.Close()
	add.Err = (&lab.Host{NetNS: netns}).CheckRules(ctx, a.pod)
	add.Captured = add.Err == nil
	return add, nil
}

// callsAtOnce is how many calls of an Adder run at once, at most: more would take a slow
// machine from what they wait for.
const callsAtOnce = 4

// Every calls the plugin at an interval, while fewer than callsAtOnce calls run, until the
// function that it returns is called, which waits for the last of them.
func (a *Adder) Every(t *testing.T, interval time.Duration) (end func() []Add) {
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var adds []Add
	var calls sync.WaitGroup
	running := make(chan struct{}, callsAtOnce)
	calls.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case <-ctx.Done():
				return
			case running <- struct{}{}:
			}
			calls.Go(func() {
				defer func() { <-running }()
				add, err := a.Add(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				adds = append(adds, add)
			})
		}
	})
	return func() []Add {
		stop()
		calls.Wait()
		return adds
	}
}

// stdin is the entry as the runtime passes it to the plugin.
func (a *Adder) stdin(netns string) (*bytes.Reader, error) {
	text, err := os.ReadFile(a.node.Path(DropIn))
	if err != nil {
		return nil, err
	}
	var conf map[string]any
	if err := json.Unmarshal(text, &conf); err != nil {
		return nil, fmt.Errorf("reading the plugin's entry: %w", err)
	}
	conf["cniVersion"], conf["name"] = "1.0.0", "podnet"
	conf["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": a.pod.Annotations}
	conf["prevResult"] = map[string]any{
		"cniVersion": "1.0.0", "interfaces": []any{map[string]string{"name": "eth0", "sandbox": netns}},
		"ips": []any{map[string]any{"address": "10.88.9.2/24", "interface": 0}, map[string]any{"address": "fd00:88:9::2/64", "interface": 0}},
	}
	document, err := json.Marshal(conf)
	return bytes.NewReader(document), err
}
