// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
)

// PodVersion is the version of Pod's fields. It changes with their names, types and
// meanings: a program that asks another for a Pod must not read an absent field as a
// default.
const PodVersion = 3

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

	NoNetRaw        bool `json:"noNetRaw,omitempty"`        // it drops NET_RAW, which some runtimes grant
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

// With returns the pod with other labels and annotations. It keeps the keys that decide in
// any mesh, labels that decide as annotations, and, for a warning or a fault, unknown keys.
func (p Pod) With(labels, annotations map[string]string) Pod {
	p.Annotations = map[string]string{}
	for key, value := range annotations {
		for _, m := range meshes {
			switch kept, valued := m.keeps(key); {
			case valued:
				p.Annotations[key] = value
			case kept:
				p.Annotations[key] = "" // only its presence matters
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

// container returns nil if the pod has no container of that name.
func (p Pod) container(name string) *Container {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Containers[i]
}
