// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// injectedPod is one that Istio's injector made in its own tests.
type injectedPod struct {
	*corev1.Pod
	file string
	init *corev1.Container // istio-init
}

// injectedByIstio returns them all.
func injectedByIstio(t *testing.T) (pods []injectedPod) {
	t.Helper()
	for _, file := range istioSources(t, "pkg/kube/inject/testdata/inject/*.injected") {
		content, err := os.ReadFile(file)
		lab.Check(t, err)
		for n, document := range strings.Split(string(content), "\n---\n") {
			var object any
			lab.Check(t, yaml.Unmarshal([]byte(document), &object))
			for m, found := range podsIn(object) {
				name := fmt.Sprintf("%s %d.%d", filepath.Base(file), n, m)
				pods = append(pods, injectedPod{Pod: podFrom(t, found), file: name})
			}
		}
	}
	for n, pod := range pods {
		at := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "istio-init" })
		if at >= 0 && slices.Contains(pod.Spec.InitContainers[at].Args, "istio-iptables") {
			pods[n].init = &pod.Spec.InitContainers[at]
		}
	}
	return pods
}

// podsIn returns the pods and pod templates anywhere in an object.
func podsIn(object any) (pods []map[string]any) {
	switch object := object.(type) {
	case []any:
		for _, item := range object {
			pods = append(pods, podsIn(item)...)
		}
	case map[string]any:
		if spec, ok := object["spec"].(map[string]any); ok && spec["containers"] != nil {
			return []map[string]any{object}
		}
		for _, value := range object {
			pods = append(pods, podsIn(value)...)
		}
	}
	return pods
}

func podFrom(t *testing.T, template map[string]any) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]})
	lab.Check(t, err)
	pod := &corev1.Pod{}
	lab.Check(t, json.Unmarshal(text, pod))
	return pod
}

// initAnnotations are what the injector writes, where Istio's plugin is in use, for the
// arguments that it gives istio-init otherwise.
var initAnnotations = map[string]string{
	"-m": "sidecar.istio.io/interceptionMode", "-k": "istio.io/reroute-virtual-interfaces",
	"-i": "traffic.sidecar.istio.io/includeOutboundIPRanges", "-x": "traffic.sidecar.istio.io/excludeOutboundIPRanges",
	"-b": "traffic.sidecar.istio.io/includeInboundPorts", "-d": "traffic.sidecar.istio.io/excludeInboundPorts",
	"-q": "traffic.sidecar.istio.io/includeOutboundPorts", "-o": "traffic.sidecar.istio.io/excludeOutboundPorts",
	"-c": "traffic.sidecar.istio.io/excludeInterfaces",
}

// withoutInit is the same pod as it would be for a plugin.
func (p injectedPod) withoutInit() *corev1.Pod {
	pod := p.DeepCopy()
	pod.Spec.InitContainers = slices.DeleteFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "istio-init" })
	for n, flag := range p.init.Args {
		if key, found := initAnnotations[flag]; found {
			if _, has := pod.Annotations[key]; !has {
				pod.Annotations[key] = p.init.Args[n+1]
			}
		}
	}
	return pod
}

func environmentFrom(env []corev1.EnvVar) (environment []string) {
	for _, e := range env {
		environment = append(environment, e.Name+"="+e.Value)
	}
	return environment
}

// buildNode builds the node agent, for its command render.
func buildNode(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	lab.Check(t, lab.Build(t.Context(), directory, "./install/capture-cni-node"))
	return filepath.Join(directory, "capture-cni-node")
}
