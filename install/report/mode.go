// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Mode says how the agent adds the plugin to the runtime's CNI configuration.
type Mode string

const (
	// Auto lets the agent choose a mode: DropIn if the runtime reports that it has loaded the drop-in,
	// and otherwise Insert or, if the agent must not edit a primary file, Owned.
	Auto Mode = "auto"
	// DropIn writes the entry to a file of its own in the directory for drop-ins of each primary
	// conflist.
	DropIn Mode = "dropin"
	// Insert writes the entry to each conflist that the runtime may load.
	Insert Mode = "insert"
	// Owned writes a copy of the primary conflist with the entry, and without istio-cni unless that has
	// ambient mode. The copy's name sorts before those of known installers.
	Owned Mode = "owned"
	// Multus writes a configuration to which a network attachment refers.
	Multus Mode = "multus"
	// MultusChain writes the entry to the auxiliary chain of Multus.
	MultusChain Mode = "multus-chain"
)

// UnderMultus reports whether Multus calls the plugin. Multus passes no annotations, and the runtime
// does not report the configuration that Multus has loaded.
func (m Mode) UnderMultus() bool { return m == Multus || m == MultusChain }

// IstioCNI is istio-cni's type in a conflist.
const IstioCNI = "istio-cni"

// MeshPlugins returns the types, in a conflist, of the plugins of other meshes than Istio.
func MeshPlugins() []string { return []string{"linkerd-cni", "kuma-cni", "consul-cni"} }

// MeshedExemptions returns the causes for which a pod in the mesh is exempt from capture.
func MeshedExemptions() []capture.ExemptionCause {
	return []capture.ExemptionCause{
		capture.InitContainer, capture.NoProxy, capture.ProxyDisabled, capture.OtherProxyType,
		capture.InjectFalse, capture.InterceptionNone, capture.NamespaceExcluded,
	}
}

// Stages returns the stages of an ADD, in their order.
func Stages() []record.Stage {
	return []record.Stage{record.Deciding, record.LookingUp, record.Committing}
}
