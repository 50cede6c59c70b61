// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"

	"github.com/capture-cni/capture-cni/config"
)

// vocabulary is what one mesh writes into its pods, and how it is read.
type vocabulary interface {
	mesh() config.MeshName
	marks(annotations map[string]string) bool // as those of a pod of the mesh
	keeps(key string) (kept, valued bool)     // a key that decides, or is warned of; with its value
	proxy(Pod) *Container                     // nil for none
	exclusion(Pod) Exemption                  // that follows from a marked pod alone
	read(*decider) Intent                     // of a pod that is not exempt; adds findings to the decider
}

func vocabularies() []vocabulary { return []vocabulary{istio{}, linkerd{}, ownKeys{}} }

// Meshed reports whether a pod with these annotations is one of the meshes'.
func Meshed(annotations map[string]string, meshes []config.MeshName) bool {
	return slices.ContainsFunc(vocabularies(), func(v vocabulary) bool {
		return slices.Contains(meshes, v.mesh()) && v.marks(annotations)
	})
}

// Exclusion returns the exemption that follows from the pod alone.
func Exclusion(pod Pod, meshes []config.MeshName) Exemption {
	switch chosen, rival := choose(pod, meshes); {
	case chosen == nil:
		return Exemption{NotInjected, "no annotation of a mesh that netconf.meshes names: not injected"}
	case rival != nil: // Decide refuses it
		return Exemption{}
	default:
		return chosen.exclusion(pod)
	}
}

// choose returns the vocabulary of a pod: of those that mark it, the one whose proxy it
// has. If it has the proxies of two, the second one is the rival.
func choose(pod Pod, meshes []config.MeshName) (chosen, rival vocabulary) {
	hasProxy := false
	for _, v := range vocabularies() {
		if !slices.Contains(meshes, v.mesh()) || !v.marks(pod.Annotations) {
			continue
		}
		switch has := v.proxy(pod) != nil; {
		case chosen == nil || has && !hasProxy:
			chosen, hasProxy = v, has
		case has:
			return chosen, v
		}
	}
	return chosen, nil
}
