// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"maps"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// mesh describes one mesh. Each mesh is a value in a file of its own.
type mesh struct {
	name config.MeshName

	// These fields say how the mesh's pods are recognized.
	mark      string               // the annotation whose presence marks a pod; "" for any key with the prefix, except a fence's
	container string               // the name of the proxy's container
	proxy     func(Pod) *Container // replaces container if a key names the proxy
	init      string               // the init container that captures the pod itself, or ""
	exemption func(Pod) Exemption  // returns an exemption of a marked pod with a proxy, or the zero value; may be nil

	// These fields say which keys are read.
	annotations []Annotation        // those that decide about capture
	whole       string              // the annotation that contains all lists, or ""
	lists       map[string][]string // maps the name of a rule's List, without its family, to the annotations that contain it, for errors
	prefix      string              // unknown keys with this prefix are kept, too, for a warning or a fault
	byAuthor    bool                // the pod's author writes the keys, not an injector
	exclusions  []string            // annotations that can exclude traffic, which a strict fence does not permit
	inclusions  []string            // annotations that also choose what is captured
	excluding   string              // a label, which label keeps as an annotation, that excludes traffic, or ""
	variables   []string            // variables of the proxy's container that decide about capture
	validation  string              // an init container that has the proxy's uid by design, or ""
	label       func(labels, annotations map[string]string)

	// read reads the keys of a pod that is not exempt. It adds faults, refusals and warnings to the
	// decider.
	read func(*decider) Intent

	// inbound and outbound return the flows for packets that arrive in the pod, and for packets that
	// the pod's processes send.
	inbound, outbound func(*Intent) flow

	// callsOwnPod, which has an effect only with TPROXY, says that packets which the proxy sends to its
	// own pod count as inbound, and that the proxy forwards connections to the application from the
	// address ProxySourceIPv4 or ProxySourceIPv6.
	callsOwnPod bool
}

// meshes contains every mesh, in the order in which choose tries them. Only tests append a mesh.
var meshes = []*mesh{istio(), linkerd(), consul(), kuma(), ownKeys()}

// meshOf returns the mesh with this name, which must be one of config.Meshes.
func meshOf(name config.MeshName) *mesh {
	return meshes[slices.IndexFunc(meshes, func(m *mesh) bool { return m.name == name })]
}

// Annotations returns the annotations that decide about capture in a mesh, in the order of the
// reference's tables.
func Annotations(name config.MeshName) []Annotation { return meshOf(name).annotations }

// Meshed reports whether a pod with these annotations is in one of the meshes, or requests a fence,
// which needs a mesh.
func Meshed(annotations map[string]string, names []config.MeshName) bool {
	return Fenced(annotations) || slices.ContainsFunc(names, func(name config.MeshName) bool { return MarkedBy(name, annotations) })
}

// MarkedBy reports whether a pod with these annotations is in the mesh with this name.
func MarkedBy(name config.MeshName, annotations map[string]string) bool {
	return meshOf(name).marks(annotations)
}

// MarkedByAuthor reports whether a pod's author wrote annotations that request a fence, or that put the
// pod into one of the meshes. Even a static pod, which no injector changes, can have such annotations.
func MarkedByAuthor(annotations map[string]string, names []config.MeshName) bool {
	return Fenced(annotations) || slices.ContainsFunc(meshes, func(m *mesh) bool {
		return m.byAuthor && slices.Contains(names, m.name) && m.marks(annotations)
	})
}

// ExemptionOf returns the exemption that follows from the pod's own fields, without regard to its
// namespace. The exemption is zero if these fields do not exempt the pod.
func ExemptionOf(pod Pod, names []config.MeshName) Exemption {
	chosen, second := choose(pod, names)
	if chosen == nil {
		return Exemption{NotInjected, "no annotation of a mesh in netconf.meshes: not injected"}
	}
	// The init container's name does not suffice for an exemption, because any container can have this
	// name.
	init := pod.container(chosen.init)
	switch {
	case second != nil: // Decide refuses such a pod
		return Exemption{}
	case init != nil && init.NetAdmin:
		return Exemption{InitContainer, "container " + chosen.init + " sets up the capture itself"}
	case chosen.proxyOf(pod) == nil:
		return Exemption{NoProxy, "no container " + chosen.container}
	case chosen.exemption == nil:
		return Exemption{}
	}
	return chosen.exemption(pod)
}

// choose returns the mesh of a pod, or nil if no mesh marks the pod. Of several meshes, it prefers one
// whose proxy the pod has. If the pod has the proxies of two meshes, second is the other mesh. For
// config.OwnKeys, a pod counts as one with a proxy even if no container is the proxy.
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

// IsProxy reports whether a mesh's proxy always has this container name. The variables of such a
// container may decide about capture.
func IsProxy(container string) bool {
	return container != "" && slices.ContainsFunc(meshes, func(m *mesh) bool { return m.container == container })
}

// DecidesAsVariable reports whether a proxy's environment variable with this name decides about
// capture.
func DecidesAsVariable(name string) bool {
	return slices.ContainsFunc(meshes, func(m *mesh) bool { return slices.Contains(m.variables, name) })
}

// decides reports whether an annotation decides about capture in this mesh, or is a key of the fence.
func (m *mesh) decides(key string) bool {
	return isFenceKey(key) || slices.ContainsFunc(m.annotations, func(a Annotation) bool { return a.Key == key })
}

// keeps reports whether a Pod contains an annotation with this key, and whether also its value. A Pod
// contains the mesh's annotations and, for warnings and faults, other keys with the mesh's prefix and
// misspelt keys of an injector or of a fence.
func (m *mesh) keeps(key string) (kept, valued bool) {
	known := m.decides(key)
	kept = known || m.prefix != "" && strings.HasPrefix(key, m.prefix) || !m.byAuthor && m.misspelt(key) != ""
	return kept, known && key != m.mark
}

// misspelt returns the annotation that a key was probably meant to be, or "". Apart from case and
// dashes, the key differs from the annotation at one place at most, and there by at most two letters.
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

func (m *mesh) marks(annotations map[string]string) bool {
	if m.mark == "" {
		return slices.ContainsFunc(slices.Collect(maps.Keys(annotations)), func(key string) bool {
			return strings.HasPrefix(key, m.prefix) && !isFenceKey(key)
		})
	}
	_, has := annotations[m.mark]
	return has
}

func (m *mesh) proxyOf(pod Pod) *Container {
	if m.proxy != nil {
		return m.proxy(pod)
	}
	return pod.container(m.container)
}
