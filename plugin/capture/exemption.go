// SPDX-License-Identifier: Apache-2.0

package capture

// Exemption is the reason why a pod is not captured. It is zero for a captured pod.
type Exemption struct {
	Cause   ExemptionCause
	Message string // names the field of the pod or of the configuration
}

// ExemptionCause is the cause of an exemption. Its values never change, because they are label values
// of metrics.
type ExemptionCause string

const (
	// NotInjected is the cause for pods outside the mesh. Pods with another cause are in the mesh, but
	// the plugin does not capture their traffic.
	NotInjected ExemptionCause = "not_injected"

	InitContainer     ExemptionCause = "init_container"
	NoProxy           ExemptionCause = "no_proxy"
	ProxyDisabled     ExemptionCause = "disable_envoy"
	OtherProxyType    ExemptionCause = "proxy_type"
	InjectFalse       ExemptionCause = "inject_false"
	InterceptionNone  ExemptionCause = "interception_none"
	NamespaceExcluded ExemptionCause = "namespace_excluded"
)
