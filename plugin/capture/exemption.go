// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"strconv"
)

// Exemption is the reason why a pod is not captured. It is zero for a captured pod.
type Exemption struct {
	Cause   ExemptionCause
	Message string // names the field of the pod or of the configuration
}

// ExemptionCause is a label value of metrics, so its values are stable.
type ExemptionCause string

const (
	// NotInjected is the cause of pods outside the mesh. Pods with any other cause
	// are in the mesh, and their traffic bypasses the proxy.
	NotInjected ExemptionCause = "not_injected"

	InitContainer     ExemptionCause = "init_container"
	NoProxy           ExemptionCause = "no_proxy"
	ProxyDisabled     ExemptionCause = "disable_envoy"
	OtherProxyType    ExemptionCause = "proxy_type"
	InjectFalse       ExemptionCause = "inject_false"
	InterceptionNone  ExemptionCause = "interception_none"
	NamespaceExcluded ExemptionCause = "namespace_excluded"
)

// Exclusion returns the exemption that follows from the pod alone.
func Exclusion(pod Pod) Exemption {
	if !Meshed(pod.Annotations) {
		return Exemption{NotInjected, "annotation " + annotationStatus + " is absent: not injected"}
	}
	// The name istio-init alone does not exempt a pod: any container can have it.
	if c := pod.container(containerInit); c != nil && c.NetAdmin {
		return Exemption{InitContainer, "container istio-init sets up the capture itself"}
	}
	proxy := pod.container(containerProxy)
	if proxy == nil {
		return Exemption{NoProxy, "no container istio-proxy"}
	}
	if isBool(proxy.Env[envDisableProxy], true) {
		return Exemption{ProxyDisabled, envDisableProxy + " is set: proxyless gRPC"}
	}
	if kind := proxy.ProxyType; kind != "" && kind != "sidecar" {
		return Exemption{OtherProxyType, "proxy type is " + kind + ", not sidecar"}
	}
	if isBool(pod.Annotations[annotationInject], false) {
		return Exemption{InjectFalse, annotationInject + " is false"}
	}
	if pod.Annotations[annotationInterceptionMode] == modeNone {
		return Exemption{InterceptionNone, annotationInterceptionMode + " is NONE"}
	}
	return Exemption{}
}

// isBool reports whether the text is a boolean with this value.
func isBool(text string, want bool) bool {
	value, err := strconv.ParseBool(text)
	return err == nil && value == want
}
