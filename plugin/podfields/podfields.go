// SPDX-License-Identifier: Apache-2.0

// Package podfields returns the fields of Kubernetes' Pod that decide about a pod's capture. Only
// programs that read pods from the API server link it.
package podfields

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Of returns the fields of a pod that decide about its capture.
func Of(pod *corev1.Pod) capture.Pod {
	var p capture.Pod
	if class := pod.Spec.RuntimeClassName; class != nil {
		p.RuntimeClass = *class
	}
	shared := cmp.Or(pod.Spec.SecurityContext, &corev1.PodSecurityContext{})
	p.Groups = groupsOf(shared)
	for i, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		own := cmp.Or(c.SecurityContext, &corev1.SecurityContext{})
		container := capture.Container{
			Name:         c.Name,
			UID:          effectiveID(own.RunAsUser, shared.RunAsUser),
			GID:          effectiveID(own.RunAsGroup, shared.RunAsGroup),
			Init:         i < len(pod.Spec.InitContainers),
			KeepsRunning: c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways,
			NetAdmin:     hasNetAdmin(own),
			NoNetRaw:     !hasNetRaw(own),

			NoNewPrivileges: own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
		}
		if capture.IsProxy(c.Name) {
			container.ProxyType, container.Env = proxyType(c.Args), proxyEnv(c.Env)
		}
		p.Containers = append(p.Containers, container)
	}
	return p.With(pod.Labels, pod.Annotations)
}

// HasController reports whether a controller would replace the pod. It returns false for a static pod,
// whose controller is its Node.
func HasController(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind != "Node"
}

func effectiveID(own, shared *int64) capture.ID {
	switch {
	case own != nil:
		return capture.ID{Number: *own}
	case shared != nil:
		return capture.ID{Number: *shared, FromPod: true}
	}
	return capture.ID{}
}

// groupsOf returns fsGroup and supplementalGroups, or AnyGroup if they are more than 100 groups, because
// a pod can list 100,000.
func groupsOf(sc *corev1.PodSecurityContext) (groups []int64) {
	if sc.FSGroup != nil {
		groups = append(groups, *sc.FSGroup)
	}
	if groups = append(groups, sc.SupplementalGroups...); len(groups) > 100 {
		return []int64{capture.AnyGroup}
	}
	return groups
}

// hasNetAdmin reports whether a container can change the network namespace. It accepts only the
// documented spellings of capabilities, although runtimes accept more: containerd upper-cases by
// Unicode, and CRI-O accepts lower case. A pod that evades an admission policy by such a spelling must
// not be exempt from capture.
func hasNetAdmin(sc *corev1.SecurityContext) bool {
	if sc.Privileged != nil && *sc.Privileged {
		return true
	}
	return sc.Capabilities != nil && slices.ContainsFunc(sc.Capabilities.Add, func(name corev1.Capability) bool {
		return name == "NET_ADMIN" || name == "CAP_NET_ADMIN" || name == "ALL"
	})
}

// hasNetRaw reports whether a container may be able to send packets past netfilter. It returns false only
// for a container that is not privileged, drops NET_RAW, which some runtimes grant by default, and adds
// neither NET_RAW nor NET_ADMIN. ALL counts as both. Unlike hasNetAdmin, hasNetRaw accepts all spellings
// with which a runtime may add a capability. It accepts only the documented spellings of those to drop,
// because containerd ignores others, such as CAP_NET_RAW.
func hasNetRaw(sc *corev1.SecurityContext) bool {
	named := func(names ...string) func(corev1.Capability) bool {
		return func(c corev1.Capability) bool {
			return slices.Contains(names, strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_"))
		}
	}
	return sc.Privileged != nil && *sc.Privileged || sc.Capabilities == nil ||
		!slices.Contains(sc.Capabilities.Drop, "NET_RAW") && !slices.Contains(sc.Capabilities.Drop, "ALL") ||
		slices.ContainsFunc(sc.Capabilities.Add, named("NET_RAW", "NET_ADMIN", "ALL"))
}

// proxyType returns the proxy's role from its arguments, such as "sidecar" from "proxy sidecar …", or ""
// for a custom command line.
func proxyType(args []string) string {
	if len(args) >= 2 && args[0] == "proxy" {
		return config.Shortened(args[1])
	}
	return ""
}

func proxyEnv(variables []corev1.EnvVar) map[string]string {
	env := map[string]string{}
	for _, v := range variables {
		if capture.DecidesAsVariable(v.Name) {
			env[v.Name] = config.Shortened(v.Value) // the last variable of a name wins, as in the kubelet
		}
	}
	return env
}
