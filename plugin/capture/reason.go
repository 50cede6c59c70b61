// SPDX-License-Identifier: Apache-2.0

package capture

// Reason says why a pod was not captured, what failed, or what was found. The number of reasons is
// small and fixed, because they are label values of metrics.
type Reason string

// Reasons of the plugin. Package telemetry defines the guard's reasons.
const (
	ReasonNotKubernetes     Reason = "not a Kubernetes pod"
	ReasonNamespaceExcluded Reason = "the namespace is excluded"
	ReasonStaticPod         Reason = "static pod"
	ReasonNotInjected       Reason = "not injected"

	ReasonInput         Reason = "input" // stdin or CNI_ARGS
	ReasonConfiguration Reason = "configuration"
	ReasonLookup        Reason = "lookup"
	ReasonAnnotations   Reason = "annotations"
	ReasonRefused       Reason = "refused"
	ReasonGone          Reason = "gone" // the network namespace
	ReasonKernel        Reason = "kernel"
)

// ExemptPrefix is the prefix of the reasons for pods in the mesh that are not captured.
const ExemptPrefix = "exempt_"

// ExemptReason returns the reason for a pod in the mesh that is not captured. So in an excluded namespace,
// a pod in the mesh has ExemptReason(NamespaceExcluded), and a pod outside the mesh, or a pod whose
// annotations are not known, has ReasonNamespaceExcluded.
func ExemptReason(cause ExemptionCause) Reason { return ExemptPrefix + Reason(cause) }
