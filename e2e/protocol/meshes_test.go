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
	own := otherSidecar("egress", 3128, map[string]string{"capture-cni.io/proxy": "egress", "capture-cni.io/outbound-port": "3129"})
	unknown := otherSidecar("egress", 3128, map[string]string{"capture-cni.io/porxy": "egress"})
	shared := otherSidecar("egress", 3128, map[string]string{"capture-cni.io/proxy": "egress", "capture-cni.io/outbound-port": "3129"})
	shared.Spec.Containers[0].SecurityContext = nil
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
		"keys of our own":                {own, "", true, 0, ""},
		"keys of our own, off":           {own, `"meshes": ["istio"],`, false, 0, ""},
		"an unknown key":                 {unknown, "", false, 100, "capture-cni.io/porxy"},
		"a uid that another may have":    {shared, "", false, 101, "container web sets no uid"},
		"a list of meshes that is wrong": {linkerd, `"meshes": ["kuma"],`, false, 7, `"meshes" is ["kuma"]`},
	} {
		t.Run(name, func(t *testing.T) {
			n, host := newNode(t), sandbox(t)
			n.Put(test.pod)
			for _, passed := range []string{"", withAnnotations(t, test.pod)} {
				c := call{netns: host.Path(), stdin: n.conf(passed + test.conf)}
				if o := c.run(t); test.code == 0 {
					o.succeeds(t)
				} else {
					o.fails(t, test.code, test.text)
				}
				if rules := ruleset(t, host); strings.Contains(rules, "redirect to :") != test.captured {
					t.Errorf("captured is not %v:\n%s", test.captured, rules)
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
}
