// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"maps"
	"slices"

	"github.com/capture-cni/capture-cni/config"
)

// PodVersion is the version of Pod's fields. Each change of their names, types or meanings increments
// it, so that no program takes an absent field of another release's Pod for a default.
const PodVersion = 3

// OldestPodVersion is the earliest version whose fields all exist in the current version with the same
// meanings. So a program that knows only this earliest version can read a Pod of this release.
const OldestPodVersion = 1

// Pod contains the fields of a Kubernetes pod that decide about its capture. It is kept in memory and
// sent as JSON. Kubernetes limits the size of annotations and names, and package podfields that of all
// other values.
type Pod struct {
	Annotations  map[string]string `json:"annotations"` // see With
	RuntimeClass string            `json:"runtimeClass,omitempty"`
	Groups       []int64           `json:"groups,omitempty"`     // fsGroup and supplementalGroups, or AnyGroup
	Containers   []Container       `json:"containers,omitempty"` // in the order of their start, so init containers come first
}

// AnyGroup replaces groups that are unknown, or too many to keep.
const AnyGroup = -1

// Complete sets the fields that an earlier version lacks to values that mean unknown.
func (p *Pod) Complete(version int) {
	if version < 2 {
		p.Groups = []int64{AnyGroup}
	}
}

// Container contains the fields of a container that decide about capture.
type Container struct {
	Name         string `json:"name"`
	UID          ID     `json:"uid,omitzero"`
	GID          ID     `json:"gid,omitzero"`
	Init         bool   `json:"init,omitempty"`         // true for native sidecars, too
	KeepsRunning bool   `json:"keepsRunning,omitempty"` // its restart policy is Always
	NetAdmin     bool   `json:"netAdmin,omitempty"`     // it can change the network namespace

	NoNetRaw        bool `json:"noNetRaw,omitempty"`        // it certainly lacks NET_RAW and NET_ADMIN
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"` // its processes can't change their ids by set-ID programs

	// Only a container for which IsProxy is true has these fields: its role, and the variables that decide
	// about capture. A variable that valueFrom sets has an empty value, because only the kubelet knows
	// the real one.
	ProxyType string            `json:"proxyType,omitempty"`
	Env       map[string]string `json:"env,omitzero"`
}

// ID is a container's uid or gid. Its Number is 0 if no security context sets the id, or if one sets
// root's.
type ID struct {
	Number  int64 `json:"number"`
	FromPod bool  `json:"fromPod,omitempty"` // from the security context of the pod, not of the container
}

// Annotation documents an annotation.
type Annotation struct{ Key, Form, Default, Meaning string }

// With returns the pod with these labels and annotations, reduced to the annotations that decide about
// capture in any mesh, labels with the effect of such an annotation, and unknown keys that cause a
// warning or a fault.
func (p Pod) With(labels, annotations map[string]string) Pod {
	p.Annotations = map[string]string{}
	for key, value := range annotations {
		for _, m := range meshes {
			switch kept, valued := m.keeps(key); {
			case valued:
				p.Annotations[key] = value
			case kept:
				p.Annotations[key] = "" // only the key's presence matters
			}
		}
	}
	for _, m := range meshes {
		if m.label != nil {
			m.label(labels, p.Annotations)
		}
	}
	return p
}

// Following returns the pod as it was created, but with the edited exclusions and inclusions of its
// mesh, because other edits have no effect while the pod runs. It returns the pod unchanged if one
// annotation contains all lists of the mesh, or if the pod has a fence, because each exclusion also opens
// the fence.
func (p Pod) Following(edited Pod, names []config.MeshName) Pod {
	chosen, _ := choose(p, names)
	if chosen == nil || chosen.whole != "" || Fenced(p.Annotations) {
		return p
	}
	p.Annotations = maps.Clone(p.Annotations)
	for _, key := range slices.Concat(chosen.exclusions, chosen.inclusions) {
		delete(p.Annotations, key)
		if value, ok := edited.Annotations[key]; ok {
			p.Annotations[key] = value
		}
	}
	return p
}

func (p Pod) container(name string) *Container {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Containers[i]
}
