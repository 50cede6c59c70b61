// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// PodUID is the UID of the stand-in's pods.
const PodUID = "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"

// fakePlugin stands in for any other plugin of the chain. It creates nothing.
const fakePlugin = `#!/bin/sh
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.77.0.2/32"}]}' ;;
esac
`

// Pod is a pod that a runtime has started, with the list at that time. The
// runtime stops it by the same list.
type Pod struct {
	Host    *lab.Host
	CNI     *libcni.CNIConfig
	List    *libcni.NetworkConfigList
	Runtime *libcni.RuntimeConf
}

// AddPod runs the ADDs of the list that a runtime would load.
func (n *Node) AddPod(t *testing.T, pod string) (*Pod, error) {
	t.Helper()
	host, err := NewSandbox(t)
	if err != nil {
		return nil, err
	}
	files, err := libcni.ConfFiles(n.NetDir, []string{".conf", ".conflist"})
	if err != nil {
		return nil, err
	}
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		return nil, err
	}
	s := &Pod{Host: host, List: list, CNI: libcni.NewCNIConfigWithCacheDir([]string{n.BinDir}, n.Dir+"/cache", nil)}
	s.Runtime = &libcni.RuntimeConf{
		ContainerID: filepath.Base(host.Path()), NetNS: host.Path(), IfName: "eth0",
		Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", pod}, {"K8S_POD_UID", n.UID(pod)}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), lab.Patience)
	defer cancel()
	_, err = s.CNI.AddNetworkList(ctx, list, s.Runtime)
	return s, err
}

// StartPod starts a pod, and returns an error unless it is captured as it asks for. Any
// goroutine of a test may call it.
func (n *Node) StartPod(t *testing.T, pod string) (*Pod, error) {
	t.Helper()
	s, err := n.AddPod(t, pod)
	if err != nil {
		return nil, err
	}
	if pod == "plain" {
		return s, ExpectNoRules(s.Host)
	}
	return s, n.CheckCaptured(t.Context(), s.Host, pod)
}

// CheckCaptured returns an error unless a namespace has exactly the rules that a meshed
// pod asks for: today's or, where the earlier release's plugin may run, those of that one.
func (n *Node) CheckCaptured(ctx context.Context, host *lab.Host, pod string) error {
	fault := host.CheckRules(ctx, NewPod(pod, true))
	if fault == nil || n.EarlierRules == "" {
		return fault
	}
	rules, err := host.ListRules(ctx)
	if err == nil && rules != n.EarlierRules {
		err = fmt.Errorf("neither today's rules nor those of the earlier release: %w:\n%s", fault, rules)
	}
	return err
}

// ExpectNoRules returns an error if a capture rule is in a namespace.
func ExpectNoRules(host *lab.Host) error {
	return host.Do(func() error {
		state, err := netfilter.Inspect(context.Background())
		if err == nil && state != (netfilter.State{}) {
			err = fmt.Errorf("the namespace has the rules %+v", state)
		}
		return err
	})
}

// Stop runs the DELs, and returns an error if a capture rule is left.
func (s *Pod) Stop(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Patience)
	defer cancel()
	if err := s.CNI.DelNetworkList(ctx, s.List, s.Runtime); err != nil {
		return err
	}
	if err := ExpectNoRules(s.Host); err != nil {
		return err
	}
	return s.Host.Close()
}

// StartAndStop starts and stops a pod.
func (n *Node) StartAndStop(t *testing.T, pod string) error {
	t.Helper()
	s, err := n.StartPod(t, pod)
	if err != nil {
		return err
	}
	return s.Stop(t)
}

// PreparePods installs the other plugins of the primary's list, and serves pods.
func (n *Node) PreparePods(t *testing.T) {
	t.Helper()
	n.InstallOthers(t)
	n.PutPod("web", true)
	n.PutPod("plain", false)
}

// InstallOthers installs the other plugins of the primary's list.
func (n *Node) InstallOthers(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ptp", "portmap"} {
		lab.Check(t, lab.WriteProgram(filepath.Join(n.BinDir, name), []byte(fakePlugin)))
	}
}

// NewPod returns a pod of the namespace shop.
func NewPod(name string, meshed bool) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "shop", name, PodUID
	p.Spec.Containers = []corev1.Container{{Name: "app"}}
	if meshed {
		p.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}})
	}
	return p
}

// PutPod adds a pod to the API server.
func (n *Node) PutPod(name string, meshed bool) { n.API.Put(NewPod(name, meshed)) }

// Call calls the installed plugin with our entry, as a runtime does.
func (n *Node) Call(command, pod, netns, lookupTimeout string) (string, error) {
	plugin := exec.Command(filepath.Join(n.BinDir, "capture-cni"))
	plugin.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=c", "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=" + n.BinDir,
		"CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod + ";K8S_POD_UID=" + n.UID(pod),
	}
	annotations := ""
	if pod == "plain" {
		annotations = `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"kubernetes.io/config.source":"api"}},`
	}
	plugin.Stdin = strings.NewReader(fmt.Sprintf(`{%s"cniVersion":"1.0.0","name":"n","type":"capture-cni","kubeconfig":%q,"lookupTimeout":%q,"prevResult":{"cniVersion":"1.0.0"}}`,
		annotations, n.StateDir+"/kubeconfig", lookupTimeout))
	out, err := plugin.CombinedOutput()
	return string(out), err
}

// Sandbox creates the network namespace of a pod.
func Sandbox(t *testing.T) *lab.Host {
	t.Helper()
	host, err := NewSandbox(t)
	lab.Check(t, err)
	return host
}

// NewSandbox is Sandbox for any goroutine of a test.
func NewSandbox(t *testing.T) (*lab.Host, error) {
	t.Helper()
	host, err := lab.NewHost()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = host.Close() })
	return host, host.AddAddresses("lo", "10.77.0.2/32")
}
