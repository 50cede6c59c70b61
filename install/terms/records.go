// SPDX-License-Identifier: Apache-2.0

package terms

import (
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// MeshedExemptions returns the causes for which a pod in the mesh is not captured.
func MeshedExemptions() []capture.ExemptionCause {
	return []capture.ExemptionCause{capture.InitContainer, capture.NoProxy, capture.ProxyDisabled, capture.OtherProxyType, capture.InjectFalse, capture.InterceptionNone, capture.NamespaceExcluded}
}

// Stages returns the stages of an ADD, in their order.
func Stages() []record.Stage {
	return []record.Stage{record.Deciding, record.LookingUp, record.Committing}
}
