// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// proxyID is the proxy's uid and gid.
const proxyID = 1337

// proxy returns the sidecar. Under TPROXY it marks its connections. For this,
// Istio runs it as root with NET_ADMIN; the rules recognise it by its group.
func (o Options) proxy(pod *corev1.Pod) (corev1.Container, error) {
	environment, err := metadata(pod)
	if err != nil {
		return corev1.Container{}, err
	}
	uid, capabilities := int64(proxyID), &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if pod.Annotations[keyInterceptionMode] == modeTProxy {
		uid, capabilities.Add = 0, []corev1.Capability{"NET_ADMIN"}
	}
	return corev1.Container{
		Name:            containerProxy,
		Image:           o.ProxyImage,
		ImagePullPolicy: corev1.PullNever,
		Args:            o.ProxyArgs,
		Env:             environment,
		ReadinessProbe:  o.ProxyProbe,
		StartupProbe:    o.ProxyProbe,
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:                ptr(uid),
			RunAsGroup:               ptr(int64(proxyID)),
			RunAsNonRoot:             ptr(uid != 0),
			Privileged:               ptr(false),
			AllowPrivilegeEscalation: ptr(false),
			ReadOnlyRootFilesystem:   ptr(true),
			Capabilities:             capabilities,
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}, nil
}

// metadata returns the proxyMetadata of the pod's annotation, which Istio puts
// into the proxy's environment.
func metadata(pod *corev1.Pod) ([]corev1.EnvVar, error) {
	var config struct{ ProxyMetadata map[string]string }
	if err := yaml.Unmarshal([]byte(pod.Annotations[keyProxyConfig]), &config); err != nil {
		return nil, fmt.Errorf("reading %s: %w", keyProxyConfig, err)
	}
	var environment []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(config.ProxyMetadata)) {
		environment = append(environment, corev1.EnvVar{Name: name, Value: config.ProxyMetadata[name]})
	}
	return environment, nil
}

// initContainer returns istio-init, which capture-cni replaces.
func (o Options) initContainer(pod *corev1.Pod) corev1.Container {
	return corev1.Container{
		Name:            containerInit,
		Image:           o.InitImage,
		ImagePullPolicy: corev1.PullNever,
		Args:            initArgs(pod.Annotations),
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:                ptr(int64(0)),
			RunAsGroup:               ptr(int64(0)),
			RunAsNonRoot:             ptr(false),
			Privileged:               ptr(false),
			AllowPrivilegeEscalation: ptr(false),
			ReadOnlyRootFilesystem:   ptr(false),
			Capabilities: &corev1.Capabilities{
				Add:  []corev1.Capability{"NET_ADMIN", "NET_RAW"},
				Drop: []corev1.Capability{"ALL"},
			},
		},
	}
}

// initArgs returns istio-iptables' command line. The last four flags are there
// only with the pod's annotation.
func initArgs(annotations map[string]string) []string {
	args := []string{
		"istio-iptables",
		"-p", "15001",
		"-z", "15006",
		"-u", "1337",
		"-m", annotations[keyInterceptionMode],
		"-i", annotations[keyIncludeOutboundRanges],
		"-x", annotations[keyExcludeOutboundRanges],
		"-b", annotations[keyIncludeInboundPorts],
		"-d", "15090,15021," + annotations[keyExcludeInboundPorts],
	}
	for _, optional := range []struct{ flag, key string }{
		{"-q", keyIncludeOutboundPorts},
		{"-o", keyExcludeOutboundPorts},
		{"-k", keyKubevirtInterfaces},
		{"-c", keyExcludeInterfaces},
	} {
		if value, ok := annotations[optional.key]; ok {
			args = append(args, optional.flag, value)
		}
	}
	return args
}

func ptr[T any](value T) *T { return &value }
