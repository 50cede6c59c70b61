// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strconv"
)

// Exemption is why a pod is not captured. The zero value is a pod that is.
type Exemption struct {
	Cause   ExemptionCause
	Message string // what in the pod, or in the configuration, says so
}

// ExemptionCause is one of a few stable words, which become labels of metrics.
type ExemptionCause string

const (
	// NotInjected pods are outside the mesh. Every other cause is of a pod in the
	// mesh whose traffic bypasses the proxy all the same.
	NotInjected ExemptionCause = "not_injected"

	InitContainer     ExemptionCause = "init_container"
	NoProxy           ExemptionCause = "no_proxy"
	ProxyDisabled     ExemptionCause = "disable_envoy"
	OtherProxyType    ExemptionCause = "proxy_type"
	InjectFalse       ExemptionCause = "inject_false"
	InterceptionNone  ExemptionCause = "interception_none"
	NamespaceExcluded ExemptionCause = "namespace_excluded"
)

// MeshedExemptions returns the causes for which a pod in the mesh is not captured.
func MeshedExemptions() []ExemptionCause {
	return []ExemptionCause{InitContainer, NoProxy, ProxyDisabled, OtherProxyType, InjectFalse, InterceptionNone, NamespaceExcluded}
}

// ExcludedNamespace is the exemption of a pod in the mesh whose namespace the
// operator excludes.
func ExcludedNamespace(namespace string) Exemption {
	return Exemption{NamespaceExcluded, fmt.Sprintf("namespace %s is in excludeNamespaces", namespace)}
}

// Exclusion returns why a pod is not captured, as far as the pod itself says it.
func Exclusion(pod Pod) Exemption {
	if !Meshed(pod.Annotations) {
		return Exemption{NotInjected, "annotation " + annotationStatus + " is absent: not injected"}
	}
	// A container that is only named istio-init exempts no pod.
	if c := pod.container(containerInit); c != nil && c.NetAdmin {
		return Exemption{InitContainer, "container istio-init sets up the capture itself"}
	}
	proxy := pod.container(containerProxy)
	if proxy == nil {
		return Exemption{NoProxy, "no container istio-proxy"}
	}
	if isBool(proxy.Env[envDisableProxy], true) {
		return Exemption{ProxyDisabled, envDisableProxy + " is set: the application speaks to the mesh itself"}
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

// isBool reports whether a text is a boolean of this value; what is none counts
// as absent.
func isBool(text string, want bool) bool {
	value, err := strconv.ParseBool(text)
	return err == nil && value == want
}
