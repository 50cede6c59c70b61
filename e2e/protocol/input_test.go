// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestBadInput sends malformed input to a meshed pod's ADD: the error has the right
// code, and no rule is applied.
func TestBadInput(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const web = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"
	for _, test := range []struct {
		name  string
		call  call
		code  int
		texts []string
	}{
		{"no stdin", call{}, 6, nil},
		{"invalid JSON", call{stdin: "{"}, 6, nil},
		{"two documents", call{stdin: n.conf("") + n.conf("")}, 6, nil},
		{"a list", call{stdin: "[]"}, 6, nil},
		{"no name", call{stdin: `{"cniVersion":"1.0.0"}`}, 7, []string{"missing network name"}},
		{"name only", call{stdin: n.conf(""), args: "K8S_POD_NAME=web"}, 4, []string{"CNI_ARGS", "K8S_POD_NAMESPACE"}},
		{"namespace only", call{stdin: n.conf(""), args: "K8S_POD_NAMESPACE=shop"}, 4, []string{"K8S_POD_NAME"}},
		{"repeated key", call{stdin: n.conf(""), args: web + ";K8S_POD_NAME=other"}, 4, []string{`K8S_POD_NAME is set to both "web" and "other"`}},
		{"no interface name", call{stdin: n.conf(""), env: []string{"CNI_IFNAME="}}, 4, []string{"CNI_IFNAME"}},
		{"faulty configuration", call{stdin: n.conf(`"ipv6": "yes", "mesh": {"inboundPort": 0, "excludeOutboundIPRanges": ["10.0.0.1"]}, "excludeNamespaces": "shop",`)}, 7, []string{
			`"ipv6" is "yes"`, `"mesh.inboundPort" is 0: expected a port number from 1 to 65535`, `write 10.0.0.1/32`, `"excludeNamespaces" is "shop": expected a list`,
		}},
		{"no kubeconfig", call{stdin: node{kubeconfig: absent(t) + "/kubeconfig"}.shortTimeout("")}, 11, []string{"/none/kubeconfig", "check that the node agent runs"}},
		{"untrusted kubeconfig", call{stdin: node{kubeconfig: untrustedFile(t)}.conf("")}, 7, []string{"belongs to uid 1000"}},
		{"no such pod", call{stdin: n.shortTimeout(""), args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=none"}, 11, []string{"looking up pod shop/none", "lookupTimeout of 3s"}},
		{"another pod of that name", call{stdin: n.shortTimeout(""), args: web + ";K8S_POD_UID=other"}, 11, []string{"UID " + uid}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := sandbox(t)
			test.call.netns = host.Path()
			test.call.run(t).fails(t, test.code, test.texts...)
			if rules := ruleset(t, host); rules != "" {
				t.Errorf("rules were left:\n%s", rules)
			}
		})
	}
}

// absent returns an allowed directory that does not exist.
func absent(t *testing.T) string {
	t.Helper()
	directory := t.TempDir() + "/none"
	allow(t, directory)
	return directory
}

func untrustedFile(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	allow(t, directory)
	path := directory + "/kubeconfig"
	lab.Check(t, os.WriteFile(path, []byte("{}"), 0o600))
	lab.Check(t, os.Chown(path, 1000, 0))
	return path
}

func TestBadPods(t *testing.T) {
	t.Parallel()
	annotate := func(pairs ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for i := 0; i < len(pairs); i += 2 {
				p.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(*corev1.Pod)
		conf   string
		code   int
		texts  []string
	}{
		{"annotations", annotate(
			"traffic.sidecar.istio.io/includeInboundPorts", "0120", "traffic.sidecar.istio.io/excludeOutboundIPRanges", "10.0.0.1,x",
			"sidecar.istio.io/interceptionMode", "redirect"), "", 100, []string{
			`annotation traffic.sidecar.istio.io/includeInboundPorts: "0120"`, "leading zero", "10.0.0.1/32", `"x": expected a range`, "expected REDIRECT, TPROXY or NONE",
		}},
		{"too many elements", func(p *corev1.Pod) {
			p.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = strings.Repeat("1,", 20_000) + "1"
		}, "", 100, []string{"excludeInboundPorts", "at most 20000 elements"}},
		{"a sandbox by its name", func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("kata-qemu") }, "", 101, []string{`runtime class "kata-qemu"`, "sharedKernelRuntimeClasses"}},
		{"sandboxed", func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("kata") }, `"sandboxedRuntimeClasses": ["kata"],`, 101, []string{`runtime class "kata"`}},
		{"shared uid", func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(7))} }, "", 101, []string{"container web runs with the proxy's uid 7"}},
		{"no such backend", func(*corev1.Pod) {}, `"backend": "ebtables",`, 7, []string{`"backend" is "ebtables"`, "expected one of"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, host := newNode(t), sandbox(t)
			n.Put(meshed(test.change))
			call{netns: host.Path(), stdin: n.conf(test.conf)}.run(t).fails(t, test.code, test.texts...)
			if rules := ruleset(t, host); rules != "" {
				t.Errorf("rules were left:\n%s", rules)
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	call{netns: "/var/run/netns/there-is-none", stdin: n.conf("")}.run(t).fails(t, 3, "does not exist")
	call{netns: "/proc/self/ns/net", stdin: n.conf("")}.run(t).fails(t, 101, "the host's own network namespace")
}

// TestPodsOutsideTheMesh starts pods that need no lookup, without a kubeconfig and an
// API server, with a valid and an invalid entry.
func TestPodsOutsideTheMesh(t *testing.T) {
	t.Parallel()
	const web = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web"
	annotations := func(pairs string) string {
		return fmt.Sprintf(`"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {%s}},`, pairs)
	}
	for _, test := range []struct{ name, args, conf, reason string }{
		{"not a Kubernetes pod", noArgs, "", "not a Kubernetes pod"},
		{"other arguments", "IgnoreUnknown=1;A=b", "", "not a Kubernetes pod"},
		{"excluded namespace", web, `"excludeNamespaces": ["shop"],`, "the namespace is excluded"},
		{"excluded by a prefix", web, `"excludeNamespaces": ["sh*"],`, "the namespace is excluded"},
		{"not injected", web, annotations(`"kubernetes.io/config.source": "api"`), "not injected"},
		{"of a mesh that is off", web, annotations(`"kubernetes.io/config.source": "api", "linkerd.io/proxy-version": ""`), "not injected"},
		{"of another one", web, `"meshes": ["linkerd"],` + annotations(`"kubernetes.io/config.source": "api", "sidecar.istio.io/status": "", "capture-cni.io/proxy": "x"`), "not injected"},
		{"static pod, file", web, annotations(`"kubernetes.io/config.source": "file"`), "static pod"},
		{"static pod, injected or not", web, annotations(`"kubernetes.io/config.source": "http", "sidecar.istio.io/status": ""`), "static pod"},
		{"static pod by UID", web + ";K8S_POD_UID=0123456789abcdef0123456789abcdef", "", "static pod"},
	} {
		for _, fault := range []string{"", `"ipv6": 5, "mesh": [], "lookupTimeout": "soon", "kubeconfig": [],`} {
			host := sandbox(t)
			const previous = `{"cniVersion":"1.0.0","ips":[]}`
			stdin := fmt.Sprintf(`{%s %s "cniVersion":"1.0.0", "name":"x", "type":"capture-cni", "logLevel":"debug", "prevResult": %s}`, test.conf, fault, previous)
			o := call{netns: host.Path(), args: test.args, stdin: stdin}.run(t)
			o.succeeds(t)
			if strings.TrimSpace(o.stdout) != previous || !strings.Contains(o.stderr, test.reason) {
				t.Errorf("%s: stdout %s, stderr %s", test.name, o.stdout, o.stderr)
			}
			if rules := ruleset(t, host); rules != "" {
				t.Errorf("%s: the pod has rules:\n%s", test.name, rules)
			}
			call{command: "CHECK", netns: host.Path(), args: test.args, stdin: stdin}.run(t).silent(t)
		}
	}
}

// TestIncompleteAnnotations expects a lookup if the kubelet's annotation is missing.
func TestIncompleteAnnotations(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, annotations := range []string{`{}`, `{"a":"b"}`, `null`, `{"kubernetes.io/config.source": 5}`, `{"kubernetes.io/config.source": ""}`} {
		host := sandbox(t)
		call{netns: host.Path(), stdin: n.conf(fmt.Sprintf(`"runtimeConfig": {"io.kubernetes.cri.pod-annotations": %s},`, annotations))}.run(t).succeeds(t)
		expectCaptured(t, host, true)
	}
}

// TestReasons expects a log line with the reason why an injected pod is not captured,
// and warnings.
func TestReasons(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for want, change := range map[string]func(*corev1.Pod){
		"container istio-init sets up the capture itself": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "istio-init", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}}
		},
		"no container istio-proxy": func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] },
		"proxy type is router":     func(p *corev1.Pod) { p.Spec.Containers[1].Args = []string{"proxy", "router"} },
		"inject is false":          func(p *corev1.Pod) { p.Labels = map[string]string{"sidecar.istio.io/inject": "false"} },
		"interceptionMode is NONE": func(p *corev1.Pod) { p.Annotations["sidecar.istio.io/interceptionMode"] = "NONE" },
	} {
		host := sandbox(t)
		n.Put(meshed(change))
		o := call{netns: host.Path(), stdin: n.conf("")}.run(t)
		o.succeeds(t)
		expectCaptured(t, host, false)
		if !strings.Contains(o.stderr, want) || !strings.Contains(o.stderr, "level=INFO") {
			t.Errorf("no %q in the log: %s", want, o.stderr)
		}
	}
	n.Put(meshed())
	o := call{netns: sandbox(t).Path(), stdin: n.conf(`"kubeconfg": "x",`)}.run(t)
	o.succeeds(t)
	if strings.Count(o.stderr, "\n") != 2 || !strings.Contains(o.stderr, `kubeconfg`) || !strings.Contains(o.stderr, "captured") {
		t.Errorf("log: %s", o.stderr)
	}
	o = call{netns: sandbox(t).Path(), stdin: n.conf(`"excludeNamespaces": ["shop"], "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source":"api", "sidecar.istio.io/status":""}},`)}.run(t)
	if !strings.Contains(o.stderr, "level=WARN") {
		t.Errorf("no warning of an injected pod in an excluded namespace: %s", o.stderr)
	}
}
