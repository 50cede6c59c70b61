// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kernels"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/backend"
)

const (
	uid     = "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"
	podIP   = "10.77.0.2"
	outside = "10.77.0.1"
)

// node has an API server with a meshed pod and one that is not.
type node struct {
	trial      kernels.Trial
	backend    config.Backend
	kubeconfig string
}

func newNode(trial kernels.Trial) (node, error) {
	api, err := kubeapi.Start()
	if err != nil {
		return node{}, err
	}
	directory, err := os.MkdirTemp("", "credentials-")
	if err != nil {
		return node{}, err
	}
	kubeconfig, err := api.WriteKubeconfig(directory)
	n := node{trial, config.Backend(trial.Backend), kubeconfig}
	batch := &corev1.Pod{}
	batch.Namespace, batch.Name, batch.UID = "shop", "batch", uid
	batch.Spec.Containers = []corev1.Container{{Name: "app"}}
	api.Put(batch)
	api.Put(n.meshed())
	return n, err
}

// meshed is a pod that needs all that its mode can need of the kernel.
func (n node) meshed() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "shop", "web", uid
	if n.trial.Mesh == config.Consul {
		pod.Annotations = map[string]string{
			"consul.hashicorp.com/transparent-proxy-status": "enabled", "consul.hashicorp.com/dual-stack": "true",
			"consul.hashicorp.com/redirect-traffic-config": `{"ConsulDNSPort": 8600, "ProxyUserID": "5995", "ProxyInboundPort": 20000}`,
		}
		pod.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: "consul-dataplane"}}
		return pod
	}
	pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}", "sidecar.istio.io/interceptionMode": n.trial.Mode}
	sidecar := corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}
	sidecar.Env = []corev1.EnvVar{{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"}, {Name: "ISTIO_DUAL_STACK", Value: fmt.Sprint(!n.trial.OnlyIPv4)}}
	pod.Spec.Containers = []corev1.Container{{Name: "app"}, sidecar}
	if n.trial.Fence {
		pod.Annotations["capture-cni.io/fence"] = "true"
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{
				RunAsUser: new(int64(1000 + 337*i)), AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}
		}
	}
	return pod
}

func (n node) mesh() config.MeshName { return cmp.Or(n.trial.Mesh, config.Istio) }

// choose has the kernel choose the backend, if the trial leaves that to it.
func (n *node) choose() (attempt kernels.Attempt, err error) {
	if n.trial.Backend != string(backend.Auto) {
		return attempt, nil
	}
	if attempt.Verdict, err = backend.Test(context.Background(), "", backend.Auto, []config.MeshName{n.mesh()}, backend.Verdict{}); err != nil {
		return attempt, err
	}
	n.backend = attempt.Verdict.Chosen
	content, err := os.ReadFile("/proc/modules")
	for line := range strings.Lines(string(content)) {
		attempt.Modules = append(attempt.Modules, strings.Fields(line)[0])
	}
	return attempt, err
}

// start starts a pod outside the mesh and a meshed one, and ends both.
func (n node) start() (kernels.Attempt, error) {
	attempt, err := n.choose()
	if err != nil {
		return attempt, err
	}
	batch, other, err := newPod()
	if err != nil {
		return kernels.Attempt{}, err
	}
	web, peer, err := newPod()
	if err != nil {
		return kernels.Attempt{}, err
	}
	defer serve(web, peer)()
	attempt.Unmeshed, attempt.Add, attempt.Left = n.call("ADD", "batch", batch), n.call("ADD", "web", web), listed(web)
	if attempt.Add == "" {
		attempt.Check = n.call("CHECK", "web", web)
		attempt.Answers = ask(web, n.trial.Connections)
	}
	if attempt.Add == "" && n.trial.Repaired {
		attempt.Repair, err = n.repair()
	}
	attempt.Del = n.call("DEL", "web", web)
	attempt.LeftAfterDel = listed(web)
	return attempt, errors.Join(err, batch.Close(), other.Close(), web.Close(), peer.Close())
}

// newPod returns the network namespace of a pod, and of what it reaches.
func newPod() (pod, peer *lab.Host, err error) {
	if pod, err = lab.NewHost(); err != nil {
		return nil, nil, err
	}
	if peer, err = lab.NewHost(); err != nil {
		return nil, nil, err
	}
	return pod, peer, errors.Join(pod.AddAddresses("lo"), lab.Link(
		lab.Interface{Host: pod, Name: "eth0", Addresses: []string{podIP + "/24"}},
		lab.Interface{Host: peer, Name: "eth0", Addresses: []string{outside + "/24"}}))
}

// call executes the plugin as a runtime does, and returns its error.
func (n node) call(verb, pod string, host *lab.Host) string {
	return n.callPlugin("capture-cni", fmt.Sprintf(
		`{"cniVersion": "1.0.0", "name": "test", "type": "capture-cni", "agentSocket": "", "kubeconfig": %q, "backend": %q, "meshes": [%q], "prevResult": {"cniVersion": "1.0.0"}}`,
		n.kubeconfig, n.backend, n.mesh()), verb, pod, host)
}

// callPlugin does so with any plugin.
func (n node) callPlugin(plugin, conf, verb, pod string, host *lab.Host) string {
	directory := os.Getenv(lab.BuiltPrograms)
	command := exec.Command(filepath.Join(directory, plugin))
	command.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+pod, "CNI_NETNS="+host.Path(), "CNI_IFNAME=eth0", "CNI_PATH="+directory,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME="+pod+";K8S_POD_UID="+uid, config.DirectoryVariable+"="+filepath.Dir(n.kubeconfig))
	command.Stdin = strings.NewReader(conf)
	var stdout bytes.Buffer
	command.Stdout = &stdout
	err := command.Run()
	if err == nil {
		return ""
	}
	var fault struct{ Msg string }
	if decodeErr := json.Unmarshal(stdout.Bytes(), &fault); decodeErr != nil {
		return errors.Join(err, decodeErr).Error()
	}
	return fault.Msg
}

// inContainer is the command of a program that a container has, if not the node.
func inContainer(name string, args ...string) *exec.Cmd {
	if path, err := exec.LookPath(filepath.Join(kernels.ContainerPrograms, name)); err == nil {
		name = path
	}
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), "PATH=/usr/sbin:"+kernels.ContainerPrograms)
	return command
}

// listed returns the rules of ours in a namespace, as every program of this guest that
// works lists them.
func listed(host *lab.Host) (ours string) {
	_ = host.Do(func() error {
		for _, command := range []string{"nft list ruleset", "iptables-legacy-save", "ip6tables-legacy-save", "ip rule"} {
			words := strings.Fields(command)
			out, _ := inContainer(words[0], words[1:]...).Output() // it fails on a kernel that lacks what it lists
			for _, mark := range []string{"ISTIO", "CAPTURE", "capture-cni", "lookup 133"} {
				if strings.Contains(string(out), mark) {
					ours += command + ":\n" + string(out)
				}
			}
		}
		return nil
	})
	return ours
}
