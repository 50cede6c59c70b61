// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"maps"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// mesh is all that is known of one mesh. Another mesh is another value, in a file of its own.
type mesh struct {
	name config.MeshName

	// How its pods are recognized.
	mark      string               // the annotation whose presence marks them; "" for any key with the prefix
	container string               // the proxy's name
	proxy     func(Pod) *Container // in place of container, if a key has the name
	init      string               // the init container that captures the pod itself, or ""
	exclusion func(Pod) Exemption  // that follows only from a marked pod with a proxy; nil for none

	// Its keys.
	annotations []Annotation        // that decide
	lists       map[string][]string // of annotations, by the name of the list that they give
	prefix      string              // also unknown keys with it are kept, for a warning or a fault
	byAuthor    bool                // the pod's author writes them, and no injector
	exclusions  []string            // annotations that a strict fence does not permit
	variables   []string            // of the proxy's environment, that decide
	validation  string              // an init container that has the proxy's uid by design, or ""
	label       func(labels, annotations map[string]string)

	// read reads the keys of a pod that is not exempt. It adds what it finds to the decider.
	read func(*decider) Intent

	// The order of its rules, for packets that arrive and for those of the pod's processes.
	inbound, outbound func(*Intent) flow

	// What the proxy sends to its own pod is inbound, and what it hands on has a ProxySource.
	callsOwnPod bool
}

// meshes has every mesh, in the order in which choose tries them. Only tests add another.
var meshes = []*mesh{istio(), linkerd(), ownKeys()}

// meshOf returns the mesh of a name, which must be one of config.Meshes.
func meshOf(name config.MeshName) *mesh {
	return meshes[slices.IndexFunc(meshes, func(m *mesh) bool { return m.name == name })]
}

// Annotations returns the annotations that decide in a mesh, in the order of the reference's
// tables.
func Annotations(name config.MeshName) []Annotation { return meshOf(name).annotations }

// Meshed reports whether a pod with these annotations is one of the meshes', or asks for a
// fence, which only a mesh's pod can have.
func Meshed(annotations map[string]string, names []config.MeshName) bool {
	return Fenced(annotations) || slices.ContainsFunc(names, func(name config.MeshName) bool { return MarkedBy(name, annotations) })
}

// MarkedBy reports whether a pod with these annotations is one of a mesh's.
func MarkedBy(name config.MeshName, annotations map[string]string) bool {
	return meshOf(name).marks(annotations)
}

// MarkedByAuthor reports whether a pod's author wrote annotations that make it one of the
// meshes'. A pod without an injector, such as a static one, can have them.
func MarkedByAuthor(annotations map[string]string, names []config.MeshName) bool {
	return Fenced(annotations) || slices.ContainsFunc(meshes, func(m *mesh) bool {
		return m.byAuthor && slices.Contains(names, m.name) && m.marks(annotations)
	})
}

// Exclusion returns the exemption that follows only from the pod.
func Exclusion(pod Pod, names []config.MeshName) Exemption {
	chosen, second := choose(pod, names)
	if chosen == nil {
		return Exemption{NotInjected, "no annotation of a mesh that netconf.meshes names: not injected"}
	}
	// The name of the init container alone does not exempt a pod: any container can have it.
	init := pod.container(chosen.init)
	switch {
	case second != nil: // Decide refuses it
		return Exemption{}
	case init != nil && init.NetAdmin:
		return Exemption{InitContainer, "container " + chosen.init + " sets up the capture itself"}
	case chosen.proxyOf(pod) == nil:
		return Exemption{NoProxy, "no container " + chosen.container}
	case chosen.exclusion == nil:
		return Exemption{}
	}
	return chosen.exclusion(pod)
}

// choose returns the mesh of a pod: of those that mark it, the one whose proxy it has. If it
// has the proxies of two, it returns both.
func choose(pod Pod, names []config.MeshName) (chosen, second *mesh) {
	hasProxy := false
	for _, m := range meshes {
		if !slices.Contains(names, m.name) || !m.marks(pod.Annotations) {
			continue
		}
		switch has := m.proxyOf(pod) != nil; {
		case chosen == nil || has && !hasProxy:
			chosen, hasProxy = m, has
		case has:
			return chosen, m
		}
	}
	return chosen, nil
}

// IsProxy reports whether a container of this name is a sidecar proxy whose variables may
// decide.
func IsProxy(container string) bool {
	return container != "" && slices.ContainsFunc(meshes, func(m *mesh) bool { return m.container == container })
}

// DecidesAsVariable reports whether an environment variable of a proxy decides.
func DecidesAsVariable(name string) bool {
	return slices.ContainsFunc(meshes, func(m *mesh) bool { return slices.Contains(m.variables, name) })
}

// decides reports whether an annotation decides.
func (m *mesh) decides(key string) bool {
	return isFenceKey(key) || slices.ContainsFunc(m.annotations, func(a Annotation) bool { return a.Key == key })
}

// keeps reports whether an annotation of a pod is kept, and whether its value is, too. A
// misspelt key of an injector is kept for a warning.
func (m *mesh) keeps(key string) (kept, valued bool) {
	known := m.decides(key)
	kept = known || m.prefix != "" && strings.HasPrefix(key, m.prefix) || !m.byAuthor && m.misspelt(key) != ""
	return kept, known && key != m.mark
}

// misspelt returns the annotation that a key was probably meant to be, or "": the key
// differs in its case and dashes, or in one place of at most two letters.
func (m *mesh) misspelt(key string) (meant string) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	text, fewest := plain(key), 2
	for _, a := range slices.Concat(m.annotations, fenceAnnotations()) {
		x, y := text, plain(a.Key)
		for x != "" && y != "" && x[0] == y[0] {
			x, y = x[1:], y[1:]
		}
		for x != "" && y != "" && x[len(x)-1] == y[len(y)-1] {
			x, y = x[:len(x)-1], y[:len(y)-1]
		}
		if letters := max(len(x), len(y)); letters <= fewest {
			meant, fewest = a.Key, letters
		}
	}
	return meant
}

// marks reports whether a pod with these annotations is one of the mesh's.
func (m *mesh) marks(annotations map[string]string) bool {
	if m.mark == "" {
		return slices.ContainsFunc(slices.Collect(maps.Keys(annotations)), func(key string) bool {
			return strings.HasPrefix(key, m.prefix) && !isFenceKey(key)
		})
	}
	_, has := annotations[m.mark]
	return has
}

// proxyOf returns the proxy of a pod, nil for none.
func (m *mesh) proxyOf(pod Pod) *Container {
	if m.proxy != nil {
		return m.proxy(pod)
	}
	return pod.container(m.container)
}
