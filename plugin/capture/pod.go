// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"
)

// Pod is what of a pod decides about its capture, and nothing else of it. It is
// kept in memory and sent as JSON. Kubernetes limits its annotations and names;
// what Kubernetes does not limit is shortened.
type Pod struct {
	Annotations  map[string]string `json:"annotations"` // see With
	RuntimeClass string            `json:"runtimeClass,omitempty"`
	Containers   []Container       `json:"containers,omitempty"` // as they start: init containers first
}

// Container is what of a container decides.
type Container struct {
	Name         string `json:"name"`
	UID          ID     `json:"uid,omitzero"`
	GID          ID     `json:"gid,omitzero"`
	Init         bool   `json:"init,omitempty"`         // an init container, perhaps a native sidecar
	KeepsRunning bool   `json:"keepsRunning,omitempty"` // its restart policy is Always
	NetAdmin     bool   `json:"netAdmin,omitempty"`     // it may change the pod's network

	// Of the proxy alone: its role, and the variables that decide. A value that
	// comes from elsewhere (valueFrom) is empty: only the kubelet knows it.
	ProxyType string            `json:"proxyType,omitempty"`
	Env       map[string]string `json:"env,omitzero"`
}

// ID is what the kubelet starts a container with; 0 where the image decides.
type ID struct {
	Number  int64 `json:"number"`
	FromPod bool  `json:"fromPod,omitempty"` // from the pod's security context, not the container's own
}

// Meshed reports from annotations alone whether a pod was injected.
func Meshed(annotations map[string]string) bool {
	_, injected := annotations[annotationStatus]
	return injected
}

// With returns the pod with other labels and annotations. Of these it keeps what
// decides, the inject label as the annotation that it overrides, and the keys
// below Istio's prefix that are not known, for a warning.
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

// container returns nil where the pod has none of that name.
func (p Pod) container(name string) *Container {
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Containers[i]
}
