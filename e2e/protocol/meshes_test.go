// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// otherSidecar turns a meshed pod into one of another mesh: with annotations, and a proxy of
// this name and uid.
func otherSidecar(name string, uid int64, annotations map[string]string) *corev1.Pod {
	return meshed(func(p *corev1.Pod) {
		p.Annotations = annotations
		app := uid + 1
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &app}
		p.Spec.Containers[1] = corev1.Container{Name: name, SecurityContext: &corev1.SecurityContext{RunAsUser: &uid}}
	})
}

// fencedSidecar is a pod with keys of our own, a fence and an exception.
func fencedSidecar() *corev1.Pod {
	pod := otherSidecar("egress", 3128, map[string]string{
		"capture-cni.io/proxy": "egress", "capture-cni.io/outbound-port": "3129",
		"capture-cni.io/fence": "true", "capture-cni.io/fence-allow": "out:udp:53@10.96.0.10/32",
	})
	app := pod.Spec.Containers[0].SecurityContext
	app.AllowPrivilegeEscalation, app.Capabilities = new(false), &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	return pod
}

// withAnnotations is a pod's annotations as a runtime passes them.
func withAnnotations(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	annotations := maps.Clone(pod.Annotations)
	annotations["kubernetes.io/config.source"] = "api"
	text, err := json.Marshal(annotations)
	lab.Check(t, err)
	return fmt.Sprintf(`"runtimeConfig": {"io.kubernetes.cri.pod-annotations": %s},`, text)
}

// TestMeshes has pods of other meshes, with the meshes that are on, with and without the
// pod's annotations from the runtime.
func TestMeshes(t *testing.T) {
	t.Parallel()
	linkerd := otherSidecar("linkerd-proxy", 2102, map[string]string{"linkerd.io/proxy-version": "edge-26.8.1"})
	skipping := otherSidecar("linkerd-proxy", 2102, map[string]string{"linkerd.io/proxy-version": "edge-26.8.1", "config.linkerd.io/skip-outbound-ports": "http"})
	consulAs := func(text string) *corev1.Pod {
		return otherSidecar("consul-dataplane", 5995, map[string]string{
			"consul.hashicorp.com/transparent-proxy-status": "enabled", "consul.hashicorp.com/redirect-traffic-config": text,
		})
	}
	consul, portless := consulAs(`{"ProxyUserID": "5995", "ProxyInboundPort": 20000, "ConsulDNSPort": 8600}`), consulAs(`{"ProxyUserID": "5995"}`)
	kuma := otherSidecar("kuma-sidecar", 5678, map[string]string{"kuma.io/sidecar-injected": "true", "traffic.kuma.io/transparent-proxy-config": "{}"})
	older := otherSidecar("kuma-sidecar", 5678, map[string]string{"kuma.io/sidecar-injected": "true", "kuma.io/builtin-dns": "enabled"})
	own := otherSidecar("egress", 3128, map[string]string{"capture-cni.io/proxy": "egress", "capture-cni.io/outbound-port": "3129"})
	unknown := otherSidecar("egress", 3128, map[string]string{"capture-cni.io/porxy": "egress"})
	shared := otherSidecar("egress", 3128, map[string]string{"capture-cni.io/proxy": "egress", "capture-cni.io/outbound-port": "3129"})
	shared.Spec.Containers[0].SecurityContext = nil
	fenced := fencedSidecar()
	unmeshed, raw := fencedSidecar(), fencedSidecar()
	unmeshed.Annotations = map[string]string{"capture-cni.io/fence": "true"}
	raw.Spec.Containers[0].SecurityContext.Capabilities = nil
	for name, test := range map[string]struct {
		pod      *corev1.Pod
		conf     string
		captured bool
		code     int // 0: ADD succeeds
		text     string
	}{
		"Linkerd, off":                   {linkerd, "", false, 0, ""},
		"Linkerd, on":                    {linkerd, `"meshes": ["linkerd"],`, true, 0, ""},
		"a list without a port":          {skipping, `"meshes": ["linkerd"],`, false, 100, `skip-outbound-ports: "http"`},
		"Consul, off":                    {consul, "", false, 0, ""},
		"Consul, on":                     {consul, `"meshes": ["consul"],`, true, 0, ""},
		"Consul without its ports":       {portless, `"meshes": ["consul"],`, false, 100, `ProxyInboundPort is "0": expected a port`},
		"Kuma, off":                      {kuma, "", false, 0, ""},
		"Kuma, on":                       {kuma, `"meshes": ["kuma"],`, true, 0, ""},
		"Kuma before version 3":          {older, `"meshes": ["kuma"],`, false, 100, "traffic.kuma.io/transparent-proxy-config: it is absent"},
		"keys of our own":                {own, "", true, 0, ""},
		"keys of our own, off":           {own, `"meshes": ["istio"],`, false, 0, ""},
		"an unknown key":                 {unknown, "", false, 100, "capture-cni.io/porxy"},
		"a uid that another may have":    {shared, "", false, 101, "container web sets no uid"},
		"a fence":                        {fenced, "", true, 0, ""},
		"a fence without a mesh":         {unmeshed, "", false, 101, "capture-cni.io/fence needs a mesh that captures the pod"},
		"a fence of a mesh that is off":  {fenced, `"meshes": ["istio"],`, false, 101, "capture-cni.io/fence needs a mesh that captures the pod"},
		"a fence, and NET_RAW":           {raw, "", false, 101, "container web may have the capability NET_RAW or NET_ADMIN"},
		"an exception beyond the limit":  {fenced, `"fenceLimit": [],`, false, 100, "expected an exception within netconf.fenceLimit"},
		"a list of meshes that is wrong": {linkerd, `"meshes": ["osm"],`, false, 7, `"meshes" is ["osm"]`},
	} {
		t.Run(name, func(t *testing.T) {
			n, host := newNode(t), sandbox(t)
			n.Put(test.pod)
			for _, passed := range []string{"", withAnnotations(t, test.pod)} {
				c := call{netns: host.Path(), stdin: n.conf(passed + test.conf)}
				if o := c.run(t); test.code == 0 {
					o.succeeds(t)
					call{command: "CHECK", netns: host.Path(), stdin: c.stdin}.run(t).silent(t)
				} else {
					o.fails(t, test.code, test.text)
				}
				rules := ruleset(t, host)
				if strings.Contains(rules, "redirect to :") != test.captured {
					t.Errorf("captured is not %v:\n%s", test.captured, rules)
				}
				if strings.Contains(rules, "hook forward") != (test.captured && test.pod == fenced) {
					t.Errorf("the fence:\n%s", rules)
				}
				call{command: "DEL", netns: host.Path()}.run(t).silent(t)
			}
		})
	}
}

// TestStaticPodWithKeys has a static pod ask for what it can't get: it does not start, unless
// its mesh is off.
func TestStaticPodWithKeys(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	const static = `"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "file", "capture-cni.io/proxy": "x"}},`
	call{netns: host.Path(), stdin: n.conf(static)}.run(t).fails(t, 101, "static pod with annotations capture-cni.io/")
	call{netns: host.Path(), stdin: n.conf(static + `"meshes": ["istio"],`)}.run(t).succeeds(t)
	fenced := strings.Replace(static, `"capture-cni.io/proxy": "x"`, `"capture-cni.io/fence": "true"`, 1)
	call{netns: host.Path(), stdin: n.conf(fenced + `"meshes": ["istio"],`)}.run(t).fails(t, 101, "static pod with annotations capture-cni.io/")
}

// TestPodWithoutItsKeys has an agent that knows no keys but Istio's, as one of an earlier
// release: a pod with keys does not pass by that answer. CHECK does not judge.
func TestPodWithoutItsKeys(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	own := otherSidecar("egress", 3128, map[string]string{"capture-cni.io/proxy": "egress", "capture-cni.io/outbound-port": "3129"})
	stdin := n.conf(withAnnotations(t, own))
	own.Annotations = nil
	n.Put(own)
	call{netns: host.Path(), stdin: stdin}.run(t).fails(t, 11, "the pod that was looked up has none")
	call{command: "CHECK", netns: host.Path(), stdin: stdin}.run(t).silent(t)

	fenced := fencedSidecar()
	stdin = n.conf(withAnnotations(t, fenced))
	delete(fenced.Annotations, "capture-cni.io/fence")
	delete(fenced.Annotations, "capture-cni.io/fence-allow")
	n.Put(fenced)
	call{netns: host.Path(), stdin: stdin}.run(t).fails(t, 11, "the pod that was looked up has none")
}
