// SPDX-License-Identifier: Apache-2.0

package podfields_test

import corev1 "k8s.io/api/core/v1"

// The names of Istio that the fields depend on.
const (
	status, inject, mode, traffic = "sidecar.istio.io/status", "sidecar.istio.io/inject", "sidecar.istio.io/interceptionMode", "traffic.sidecar.istio.io/"

	disableProxy, dnsCapture, dualStack, dropInvalid = "DISABLE_ENVOY", "ISTIO_META_DNS_CAPTURE", "ISTIO_DUAL_STACK", "INVALID_DROP"
)

// meshedPod returns an injected pod with changes.
func meshedPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{status: "{}"}
	pod.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
}

func withEnv(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		proxy := &p.Spec.Containers[1]
		proxy.Env = append(proxy.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

func withArgs(args ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[1].Args = args }
}

func withInit(name string, security *corev1.SecurityContext) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, SecurityContext: security})
	}
}

func capabilities(names ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: names}}
}

// native makes the proxy a native sidecar.
func native(p *corev1.Pod) {
	proxy := p.Spec.Containers[1]
	proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers = append(p.Spec.InitContainers, proxy)
	p.Spec.Containers = p.Spec.Containers[:1]
}

// everyFieldPod returns a pod with all fields that decide, and others.
func everyFieldPod() *corev1.Pod {
	pod := meshedPod(
		annotated(traffic+"unknown", "u"), annotated(inject, "true"), annotated("example.com/other", "o"),
		annotated(traffic+"excludeOutboundPorts", "80, 81"), labelled(inject, "yes"),
		withEnv(dnsCapture, "true"), withEnv(dualStack, "false"), withEnv(dualStack, "1"), withEnv("OTHER", "o"),
		withInit("istio-init", capabilities("NET_ADMIN")), withInit("istio-validation", nil))
	pod.Spec.RuntimeClassName = new("runc")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: new(int64(5)), RunAsGroup: new(int64(6)), FSGroup: new(int64(5)), SupplementalGroups: []int64{1337, 8},
	}
	pod.Spec.InitContainers[1].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(7)), AllowPrivilegeEscalation: new(false)}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: dropInvalid, Value: "true"}}
	return pod
}
