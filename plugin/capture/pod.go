// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// PodVersion is the version of Pod's fields. It changes with their names, types and
// meanings: a program that asks another for a Pod must not read an absent field as a
// default.
const PodVersion = 2

// OldestPodVersion is the earliest version whose fields are all in today's Pod, with their
// meanings: a program of that release reads a Pod as its own release would have made it.
const OldestPodVersion = 1

// Pod holds only those fields of a Kubernetes pod that decide about its capture. It
// is kept in memory and sent as JSON. Kubernetes limits the size of annotations and
// names; package podfields shortens all other values.
type Pod struct {
	Annotations  map[string]string `json:"annotations"` // see With
	RuntimeClass string            `json:"runtimeClass,omitempty"`
	Groups       []int64           `json:"groups,omitempty"`     // fsGroup and supplementalGroups, or AnyGroup
	Containers   []Container       `json:"containers,omitempty"` // in starting order: init containers first
}

// AnyGroup stands for groups that are not known, and for more of them than are kept of a pod.
const AnyGroup = -1

// Complete makes what a pod of an earlier version lacks unknown.
func (p *Pod) Complete(version int) {
	if version < 2 {
		p.Groups = []int64{AnyGroup}
	}
}

// Container holds the fields of a container that decide.
type Container struct {
	Name         string `json:"name"`
	UID          ID     `json:"uid,omitzero"`
	GID          ID     `json:"gid,omitzero"`
	Init         bool   `json:"init,omitempty"`         // true for native sidecars, too
	KeepsRunning bool   `json:"keepsRunning,omitempty"` // its restart policy is Always
	NetAdmin     bool   `json:"netAdmin,omitempty"`     // it can change the network namespace

	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"` // no set-ID program changes its processes' ids

	// Only for the proxy: its role, and the variables that decide. A variable that
	// valueFrom sets is empty: only the kubelet knows its value.
	ProxyType string            `json:"proxyType,omitempty"`
	Env       map[string]string `json:"env,omitzero"`
}

// ID is a container's uid or gid; 0 if only the image sets it.
type ID struct {
	Number  int64 `json:"number"`
	FromPod bool  `json:"fromPod,omitempty"` // from the pod's security context, not the container's own
}

// Annotation documents an annotation.
type Annotation struct{ Key, Form, Default, Meaning string }

// Annotations returns the annotations that decide in a mesh, in the order of the reference's
// tables.
func Annotations(mesh config.MeshName) []Annotation {
	switch mesh {
	case config.Linkerd:
		return linkerdAnnotations()
	case config.OwnKeys:
		return ownAnnotations()
	}
	return istioAnnotations()
}

// decides reports whether an annotation decides in a mesh.
func decides(mesh config.MeshName, key string) bool {
	return slices.ContainsFunc(Annotations(mesh), func(a Annotation) bool { return a.Key == key })
}

// misspelt returns the annotation of a mesh that a key was probably meant to be, or "": the
// key differs in its case and dashes, or in one place of at most two letters.
func misspelt(mesh config.MeshName, key string) (meant string) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	text, fewest := plain(key), 2
	for _, a := range Annotations(mesh) {
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

// IsProxy reports whether a container of this name is a sidecar proxy whose variables may
// decide.
func IsProxy(container string) bool {
	return container == containerProxy || container == containerLinkerdProxy
}

// DecidesAsVariable reports whether an environment variable of a proxy decides.
func DecidesAsVariable(name string) bool {
	switch name {
	case envDisableProxy, envDNSCapture, envDualStack, envDropInvalid,
		envDropInvalidMisspelt, envLinkerdInbound, envLinkerdOutbound, envLinkerdOutboundOld, envLinkerdControl, envLinkerdAdmin:
		return true
	}
	return false
}

// With returns the pod with other labels and annotations. It keeps the keys that decide in
// any mesh, two labels as annotations, and, for a warning or a fault, unknown keys.
func (p Pod) With(labels, annotations map[string]string) Pod {
	p.Annotations = map[string]string{}
	for key, value := range annotations {
		for _, v := range vocabularies() {
			switch kept, valued := v.keeps(key); {
			case valued:
				p.Annotations[key] = value
			case kept:
				p.Annotations[key] = "" // only its presence matters
			}
		}
	}
	if value := labels[labelLinkerdControlPlane]; value != "" {
		p.Annotations[labelLinkerdControlPlane] = ""
	}
	if value, ok := labels[annotationInject]; ok { // it overrides the annotation
		p.Annotations[annotationInject] = value
	}
	return p
}

// container returns nil if the pod has no container of that name.
func (p Pod) container(name string) *Container {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Containers[i]
}
