// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

const uid = "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"

// node has credentials for an API server with the meshed pod shop/web and the unmeshed
// pod shop/batch.
type node struct {
	*kubeapi.Server
	kubeconfig string
}

func newNode(t *testing.T) node {
	t.Helper()
	return serve(t)
}

func serve(t *testing.T, opts ...kubeapi.Option) node {
	t.Helper()
	lab.RequireRoot(t)
	api, err := kubeapi.Start(opts...)
	lab.Check(t, err)
	t.Cleanup(func() { _ = api.Close() })
	kubeconfig, err := api.WriteKubeconfig(t.TempDir())
	lab.Check(t, err)
	allow(t, filepath.Dir(kubeconfig))
	api.Put(meshed())
	batch := &corev1.Pod{}
	batch.Namespace, batch.Name, batch.UID = "shop", "batch", uid
	batch.Spec.Containers = []corev1.Container{{Name: "batch"}}
	api.Put(batch)
	return node{api, kubeconfig}
}

func meshed(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "shop", "web", types.UID(uid)
	pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
	pod.Spec.Containers = []corev1.Container{{Name: "web"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// sandbox returns a pod's network namespace with an address, as after the interface
// plugin.
func sandbox(t *testing.T) *lab.Host {
	t.Helper()
	lab.RequireRoot(t)
	host, err := lab.NewHost()
	lab.Check(t, err)
	t.Cleanup(func() { lab.Check(t, host.Close()) })
	lab.Check(t, host.AddAddresses("lo", "10.77.0.2/32"))
	return host
}

// newNodeOn serves the API on the loopback of a host, for plugins that run there.
func newNodeOn(t *testing.T, host *lab.Host) node {
	t.Helper()
	var listener net.Listener
	lab.Check(t, host.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	return serve(t, kubeapi.WithListener(listener))
}

// cnitool runs the command in the calling thread's namespace.
func cnitool(t *testing.T, dir, verb, netns string) outcome {
	t.Helper()
	command := exec.Command(filepath.Join(bin, "cnitool"), verb, "chain", netns)
	command.Env = append(os.Environ(), "CNI_PATH="+bin, "NETCONFPATH="+dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web")
	return finish(t, command)
}
