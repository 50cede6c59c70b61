// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Istio's names, as far as injection reads or writes them.
const (
	containerProxy = "istio-proxy"
	containerInit  = "istio-init"

	keyInject           = "sidecar.istio.io/inject"
	keyStatus           = "sidecar.istio.io/status"
	keyNativeSidecar    = "sidecar.istio.io/nativeSidecar"
	keyProxyConfig      = "proxy.istio.io/config"
	keyInterceptionMode = "sidecar.istio.io/interceptionMode"

	keyTraffic               = "traffic.sidecar.istio.io/"
	keyIncludeInboundPorts   = keyTraffic + "includeInboundPorts"
	keyExcludeInboundPorts   = keyTraffic + "excludeInboundPorts"
	keyIncludeOutboundPorts  = keyTraffic + "includeOutboundPorts"
	keyExcludeOutboundPorts  = keyTraffic + "excludeOutboundPorts"
	keyIncludeOutboundRanges = keyTraffic + "includeOutboundIPRanges"
	keyExcludeOutboundRanges = keyTraffic + "excludeOutboundIPRanges"
	keyExcludeInterfaces     = keyTraffic + "excludeInterfaces"
	keyKubevirtInterfaces    = keyTraffic + "kubevirtInterfaces"

	modeNone   = "NONE"
	modeTProxy = "TPROXY"

	// statusPort is always excluded inbound: the kubelet's probes use it.
	statusPort = "15020"
)

// shouldInject reports whether to inject the pod. A pod with a proxy was injected
// before: the API server may invoke the webhook again for a pod it has changed.
func shouldInject(pod *corev1.Pod) bool {
	if pod.Spec.HostNetwork || hasContainer(pod.Spec.Containers, containerProxy) || hasContainer(pod.Spec.InitContainers, containerProxy) {
		return false
	}
	choice, ok := pod.Labels[keyInject]
	if !ok {
		choice = pod.Annotations[keyInject]
	}
	switch choice {
	case "", "y", "yes", "true", "on":
		return true
	}
	return false
}

func hasContainer(containers []corev1.Container, name string) bool {
	return slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == name })
}

// status is the injector's annotation on a pod.
type status struct {
	InitContainers   []string `json:"initContainers"`
	Containers       []string `json:"containers"`
	Volumes          []string `json:"volumes"`
	ImagePullSecrets []string `json:"imagePullSecrets"`
	Revision         string   `json:"revision"`
}

// inject keeps Istio's order: a native sidecar comes before the pod's own init
// containers and istio-init before it; without a native sidecar istio-init
// comes last, so that the others still reach the network.
func (o Options) inject(pod *corev1.Pod) error {
	annotate(pod)
	native := pod.Annotations[keyNativeSidecar] != "false"
	done := status{Revision: "default"}

	var initContainers []corev1.Container
	if o.Init && pod.Annotations[keyInterceptionMode] != modeNone {
		initContainers = append(initContainers, o.initContainer(pod))
		done.InitContainers = append(done.InitContainers, containerInit)
	}
	proxy, err := o.proxy(pod)
	if err != nil {
		return err
	}
	if native {
		always := corev1.ContainerRestartPolicyAlways
		proxy.RestartPolicy = &always
		pod.Spec.InitContainers = slices.Concat(initContainers, []corev1.Container{proxy}, pod.Spec.InitContainers)
		done.InitContainers = append(done.InitContainers, containerProxy)
	} else {
		pod.Spec.InitContainers = slices.Concat(pod.Spec.InitContainers, initContainers)
		pod.Spec.Containers = append(pod.Spec.Containers, proxy)
		done.Containers = append(done.Containers, containerProxy)
	}

	text, err := json.Marshal(done)
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	pod.Annotations[keyStatus] = string(text)
	return nil
}

// annotate adds the mesh's defaults as annotations where the pod has none.
func annotate(pod *corev1.Pod) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	for key, value := range map[string]string{
		keyInterceptionMode:      "REDIRECT",
		keyIncludeInboundPorts:   "*",
		keyIncludeOutboundRanges: "*",
		keyExcludeOutboundRanges: "",
	} {
		if _, ok := pod.Annotations[key]; !ok {
			pod.Annotations[key] = value
		}
	}
	excluded := pod.Annotations[keyExcludeInboundPorts]
	if !slices.Contains(strings.Split(excluded, ","), statusPort) {
		excluded = strings.TrimPrefix(excluded+","+statusPort, ",")
	}
	pod.Annotations[keyExcludeInboundPorts] = excluded
}
