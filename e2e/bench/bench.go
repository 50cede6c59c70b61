// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/tables"
)

// bench has the programs, an API server in this process, and credentials for
// it. All programs use that server, so every figure contains its cost alike.
type bench struct {
	ctx context.Context
	tables.Tables
	dir  string
	api  *kubeapi.Server
	node *agentNode // whose agent answers the plugin; nil before a part has needed it

	firewall *lab.Host // holds a hook of each kind
}

func newBench(ctx context.Context) (b *bench, err error) {
	b = &bench{ctx: ctx}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return b, fmt.Errorf("creating a directory: %w", err)
	}
	project, err := lab.Project(ctx)
	if err != nil {
		return b, err
	}
	for name, source := range map[string]string{"capture-cni": "plugin/capture-cni", "capture-cni-lookup": "plugin/capture-cni-lookup", "capture-cni-node": "install/capture-cni-node", "floor": "e2e/bench/floor", "empty": "e2e/bench/empty", "peak": "e2e/bench/peak"} {
		progress("building %s", name)
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.program(name), ".")
		build.Dir, build.Env = filepath.Join(project, source), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return b, fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
		if err := rewrite(b.program(name)); err != nil {
			return b, fmt.Errorf("rewriting %s: %w", name, err)
		}
	}
	if b.api, err = kubeapi.Start(); err != nil {
		return b, err
	}
	if err := b.startFirewall(); err != nil {
		return b, err
	}
	for _, directory := range []string{b.credentials(), b.alone(), b.answered()} {
		if err := os.Mkdir(directory, 0o700); err != nil {
			return b, fmt.Errorf("creating a directory: %w", err)
		}
		if _, err := b.api.WriteKubeconfig(directory); err != nil {
			return b, err
		}
	}
	b.api.Put(pod("web", map[string]string{"sidecar.istio.io/status": "{}"}))
	b.api.Put(pod("batch", nil))
	fenced := pod("fenced", map[string]string{"sidecar.istio.io/status": "{}", "capture-cni.io/fence": "true"})
	for i := range fenced.Spec.Containers {
		fenced.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{
			RunAsUser: new(int64(1000 + 337*i)), AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
	everything := pod("everything", map[string]string{"sidecar.istio.io/status": "{}", "sidecar.istio.io/interceptionMode": "TPROXY"})
	proxy := &everything.Spec.Containers[1]
	proxy.Env = append(proxy.Env, corev1.EnvVar{Name: "ISTIO_META_DNS_CAPTURE", Value: "true"})
	b.api.Put(everything)
	b.api.Put(fenced)
	return b, err
}

// rewrite replaces a program by a copy, as installers do: the kernel keeps what a linker
// wrote by mmap in single pages, and maps them more slowly.
func rewrite(program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.Remove(program); err != nil {
		return err
	}
	return os.WriteFile(program, content, 0o755)
}

// credentials is the directory of the agents' and the floor's credentials. An agent watches it, so that it contains nothing else.
func (b *bench) credentials() string { return filepath.Join(b.dir, "credentials") }

// alone is the directory of a plugin without an agent.
func (b *bench) alone() string { return filepath.Join(b.dir, "alone") }

// answered is the directory of a plugin that an agent answers.
func (b *bench) answered() string { return filepath.Join(b.dir, "answered") }

// startFirewall adds a chain to each hook in a namespace of its own, as the programs of a Kubernetes
// node do. Without one, a pod that is the first to use a hook also waits until the kernel has
// rewritten its own code for this hook (nf_hooks_needed in net/netfilter/core.c).
func (b *bench) startFirewall() (err error) {
	if b.firewall, err = lab.NewHost(); err != nil {
		return err
	}
	rules := "table inet node {\n"
	for _, hook := range []string{"prerouting", "input", "forward", "output", "postrouting"} {
		rules += fmt.Sprintf("chain %s { type filter hook %[1]s priority filter; }\n", hook)
	}
	return b.firewall.Do(func() error {
		nft := exec.CommandContext(b.ctx, "nft", "-f", "-")
		nft.Stdin = strings.NewReader(rules + "}")
		if out, err := nft.CombinedOutput(); err != nil {
			return fmt.Errorf("adding the node's hooks: %w\n%s", err, out)
		}
		return nil
	})
}

func (b *bench) close() error {
	var errs []error
	if b.node != nil {
		errs = append(errs, b.node.stop())
	}
	if b.api != nil {
		errs = append(errs, b.api.Close())
	}
	if b.firewall != nil {
		errs = append(errs, b.firewall.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

func (b *bench) program(name string) string { return filepath.Join(b.dir, name) }

// nodeName is the node of the pods that the plugin is called for.
const nodeName = "node-1"

const uid = "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"

// pod returns a pod of about a real one's size.
func pod(name string, annotations map[string]string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID, p.Annotations, p.Spec.NodeName = "shop", name, uid, annotations, nodeName
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: "app"}}
	if annotations != nil {
		proxy := corev1.Container{Name: "istio-proxy", Image: "proxy", Args: []string{"proxy", "sidecar"}}
		for i := range 30 {
			proxy.Env = append(proxy.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", i), Value: strings.Repeat("x", 40)})
		}
		p.Spec.Containers = append(p.Spec.Containers, proxy)
	}
	return p
}

// More keys of the plugin's entry.
const (
	// annotated passes the pod's annotations, as runtimes with that capability do.
	annotated = `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"kubernetes.io/config.source":"api"}}`
	dualStack = `"ipv6":"always"`
)

func by(backend config.Backend) string { return fmt.Sprintf(`"backend":%q`, backend) }

// call prepares a call of the plugin for a pod, which the agent answers.
func (b *bench) call(verb, name, netns string, keys ...string) *exec.Cmd {
	return b.callFrom(b.answered(), verb, name, netns, keys...)
}

// callFrom prepares a call of the plugin with the sockets and credentials in a directory.
func (b *bench) callFrom(dir, verb, name, netns string, keys ...string) *exec.Cmd {
	keys = append(keys, `"cniVersion":"1.0.0","name":"bench","type":"capture-cni","logLevel":"error","prevResult":{"cniVersion":"1.0.0"}`)
	command := exec.CommandContext(b.ctx, b.program("capture-cni"))
	command.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=bench", "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=" + b.dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name + ";K8S_POD_UID=" + uid,
		config.DirectoryVariable + "=" + dir,
	}
	command.Stdin = strings.NewReader(fmt.Sprintf(`{%s,"kubeconfig":%q,"agentSocket":%q}`, strings.Join(keys, ","),
		filepath.Join(dir, config.KubeconfigName), filepath.Join(dir, config.AgentSocketName)))
	return command
}

// floor prepares a run of the floor for the meshed pod.
func (b *bench) floor(netns string) *exec.Cmd {
	return b.floorReading(b.api.URL+"/api/v1/namespaces/shop/pods/web?resourceVersion=0", netns)
}

// bareFloor prepares one that reads no pod, as an ADD that the agent answers.
func (b *bench) bareFloor(netns string) *exec.Cmd { return b.floorReading("", netns) }

func (b *bench) floorReading(url, netns string) *exec.Cmd {
	return exec.CommandContext(b.ctx, b.program("floor"), url, filepath.Join(b.credentials(), "ca.crt"), filepath.Join(b.credentials(), "token"), netns)
}

// sandbox creates a pod's network namespace as the interface plugin leaves it.
func sandbox() (*lab.Host, error) {
	host, err := lab.NewHost()
	if err != nil {
		return nil, err
	}
	if err := host.AddAddresses("lo", "10.77.0.2/32"); err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return host, nil
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }
