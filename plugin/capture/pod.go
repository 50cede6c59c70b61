// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"
)

// PodVersion is the version of Pod's fields. It changes with their names, types and
// meanings: a program that asks another for a Pod must not read an absent field as a
// default.
const PodVersion = 1

// Pod holds only those fields of a Kubernetes pod that decide about its capture. It
// is kept in memory and sent as JSON. Kubernetes limits the size of annotations and
// names; package podfields shortens all other values.
type Pod struct {
	Annotations  map[string]string `json:"annotations"` // see With
	RuntimeClass string            `json:"runtimeClass,omitempty"`
	Containers   []Container       `json:"containers,omitempty"` // in starting order: init containers first
}

// Container holds the fields of a container that decide.
type Container struct {
	Name         string `json:"name"`
	UID          ID     `json:"uid,omitzero"`
	GID          ID     `json:"gid,omitzero"`
	Init         bool   `json:"init,omitempty"`         // true for native sidecars, too
	KeepsRunning bool   `json:"keepsRunning,omitempty"` // its restart policy is Always
	NetAdmin     bool   `json:"netAdmin,omitempty"`     // it can change the network namespace

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

// IsProxy reports whether a container of this name is the sidecar proxy.
func IsProxy(container string) bool { return container == containerProxy }

// DecidesAsVariable reports whether an environment variable of the proxy decides.
func DecidesAsVariable(name string) bool {
	switch name {
	case envDisableProxy, envDNSCapture, envDualStack, envDropInvalid:
		return true
	}
	return false
}

// Meshed reports whether a pod with these annotations was injected.
func Meshed(annotations map[string]string) bool {
	_, injected := annotations[annotationStatus]
	return injected
}

// With returns the pod with other labels and annotations. It keeps the known keys,
// the inject label as the annotation that it overrides, and, for a warning, unknown
// keys with Istio's prefix.
func (p Pod) With(labels, annotations map[string]string) Pod {
	p.Annotations = map[string]string{}
	for key, value := range annotations {
		switch known := isKnownAnnotation(key); {
		case known && key != annotationStatus:
			p.Annotations[key] = value
		case known || strings.HasPrefix(key, annotationTraffic):
			p.Annotations[key] = "" // only its presence matters
		}
	}
	if value, ok := labels[annotationInject]; ok {
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
