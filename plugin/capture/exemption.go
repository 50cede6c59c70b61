// SPDX-License-Identifier: Apache-2.0

package capture

import "fmt"

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
