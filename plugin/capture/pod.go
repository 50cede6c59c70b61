// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
)

// Meshed tells from annotations alone whether a pod was injected.
func Meshed(annotations map[string]string) bool {
	_, injected := annotations[annotationStatus]
	return injected
}

// Exclusion returns why a pod is not captured, as far as the pod itself says it.
func Exclusion(pod *corev1.Pod) Exemption {
	if !Meshed(pod.Annotations) {
		return Exemption{NotInjected, "annotation " + annotationStatus + " is absent: not injected"}
	}
	if c := findContainer(pod, containerInit); c != nil && canProgramRules(c) {
		return Exemption{InitContainer, "container istio-init sets up the capture itself"}
	}
	proxy := findContainer(pod, containerProxy)
	if proxy == nil {
		return Exemption{NoProxy, "no container istio-proxy"}
	}
	if value, _ := lookupEnv(proxy, envDisableProxy); isTrue(value) {
		return Exemption{ProxyDisabled, envDisableProxy + " is set: the application speaks to the mesh itself"}
	}
	if kind := proxyType(proxy); kind != "" && kind != "sidecar" {
		return Exemption{OtherProxyType, "proxy type is " + config.Shortened(kind) + ", not sidecar"}
	}
	if inject, ok := injectSwitch(pod); ok && !inject {
		return Exemption{InjectFalse, annotationInject + " is false"}
	}
	if pod.Annotations[annotationInterceptionMode] == modeNone {
		return Exemption{InterceptionNone, annotationInterceptionMode + " is NONE"}
	}
	return Exemption{}
}

// podContainers yields a pod's containers as they start: init containers, a
// native sidecar among them, come first.
func podContainers(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

func findContainer(pod *corev1.Pod, name string) *corev1.Container {
	containers := podContainers(pod)
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

// canProgramRules reports whether a container may change the pod's network: a
// container that is only named istio-init exempts no pod.
//
// Capabilities match byte by byte, in the spelling that Kubernetes documents.
// Runtimes upper-case by Unicode (containerd) or take lower case (CRI-O), so that
// other spellings may grant the capability, too; but a policy that compares
// strings does not see those, and what no policy sees must not end capture.
func canProgramRules(c *corev1.Container) bool {
	sc := c.SecurityContext
	if sc == nil {
		return false
	}
	if sc.Privileged != nil && *sc.Privileged {
		return true
	}
	if sc.Capabilities == nil {
		return false
	}
	return slices.ContainsFunc(sc.Capabilities.Add, func(name corev1.Capability) bool {
		return name == "NET_ADMIN" || name == "CAP_NET_ADMIN" || name == "ALL"
	})
}

// proxyType reads the role from the proxy's arguments: "proxy sidecar …".
// Other arguments are somebody's own command line and give "".
func proxyType(proxy *corev1.Container) string {
	if args := proxy.Args; len(args) >= 2 && args[0] == "proxy" {
		return args[1]
	}
	return ""
}

// injectSwitch reads the inject label, else the annotation; values that are
// no boolean count as absent.
func injectSwitch(pod *corev1.Pod) (value, ok bool) {
	text, ok := pod.Labels[annotationInject]
	if !ok {
		text = pod.Annotations[annotationInject]
	}
	value, err := strconv.ParseBool(text)
	return value, err == nil
}

// lookupEnv gives a variable's literal value. One taken from elsewhere
// (valueFrom) is there, but its value is not known to anybody but the kubelet.
func lookupEnv(c *corev1.Container, name string) (value string, ok bool) {
	for _, env := range c.Env {
		if env.Name == name {
			value, ok = env.Value, true // the last one wins, as in the kubelet
		}
	}
	return value, ok
}

func isTrue(text string) bool {
	value, err := strconv.ParseBool(text)
	return err == nil && value
}
