// SPDX-License-Identifier: Apache-2.0

package received

import "github.com/capture-cni/capture-cni/plugin/capture"

// MeshedExemptions returns the causes for which a pod in the mesh is not captured.
func MeshedExemptions() []capture.ExemptionCause {
	return []capture.ExemptionCause{capture.InitContainer, capture.NoProxy, capture.ProxyDisabled, capture.OtherProxyType, capture.InjectFalse, capture.InterceptionNone, capture.NamespaceExcluded}
}
