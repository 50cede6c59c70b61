// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// istioInit captures a pod as the container istio-init does, by the same program and
// arguments.
func istioInit(t *testing.T, pod *lab.Host, environment []string, args ...string) error {
	t.Helper()
	program := lab.Part(t, "istio/pilot-agent")
	return pod.Do(func() error {
		command := exec.Command(program, append([]string{"istio-iptables"}, args...)...)
		command.Env = append(os.Environ(), environment...)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("istio-iptables %q: %w\n%s", args, err, out)
		}
		return nil
	})
}

// istioCNI is Istio's own plugin, with the API server from which it reads pods.
type istioCNI struct {
	program string
	api     *kubeapi.Server
	dir     string // with its kubeconfig
}

func newIstioCNI(t *testing.T) istioCNI {
	t.Helper()
	api, err := kubeapi.Start()
	lab.Check(t, err)
	t.Cleanup(func() { _ = api.Close() })
	dir := t.TempDir()
	kubeconfig, err := api.WriteKubeconfig(dir)
	lab.Check(t, err)
	lab.Check(t, os.Rename(kubeconfig, filepath.Join(dir, "istio-cni-kubeconfig")))
	return istioCNI{lab.Part(t, "istio/istio-cni"), api, dir}
}

// add captures a pod in a host's namespace. The mesh's owner groups and loopback range
// come from the plugin's environment: its configuration has no key for them. Istio 1.22
// finds the API server by another key than later ones.
func (i istioCNI) add(host *lab.Host, pod *corev1.Pod, environment ...string) error {
	pod = pod.DeepCopy()
	pod.Namespace, pod.Name = "shop", filepath.Base(host.Path())
	i.api.Put(pod)
	conf := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "istio-cni", "type": "istio-cni", "cni_agent_run_dir": %q, "kubernetes": {"kubeconfig": %q}, "prevResult": {"cniVersion": "1.0.0"}}`, i.dir, filepath.Join(i.dir, "istio-cni-kubeconfig"))
	command := exec.Command(i.program)
	command.Stdin = strings.NewReader(conf)
	command.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=pod", "CNI_IFNAME=eth0", "CNI_PATH=/", "CNI_NETNS="+host.Path(),
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s", pod.Namespace, pod.Name))
	command.Env = append(command.Env, environment...)
	var stdout bytes.Buffer
	command.Stdout = &stdout
	if err := command.Run(); err != nil {
		return fmt.Errorf("Istio's plugin: %w: %s", err, &stdout)
	}
	return nil
}
