// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
)

// meshedPod returns an injected pod with changes.
func meshedPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{annotationStatus: "{}"}
	pod.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: containerProxy, Args: []string{"proxy", "sidecar"}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
}

func withEnv(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		proxy := &p.Spec.Containers[1]
		proxy.Env = append(proxy.Env, corev1.EnvVar{Name: name, Value: value})
	}
}

func withArgs(args ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[1].Args = args }
}

func withInit(name string, security *corev1.SecurityContext) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, SecurityContext: security})
	}
}

func capabilities(names ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: names}}
}

// native makes the proxy a native sidecar.
func native(p *corev1.Pod) {
	proxy := p.Spec.Containers[1]
	proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers = append(p.Spec.InitContainers, proxy)
	p.Spec.Containers = p.Spec.Containers[:1]
}

func TestExclusion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		pod   *corev1.Pod
		cause ExemptionCause // "" for a pod that is captured
		says  string         // part of the message
	}{
		{"meshed", meshedPod(), "", ""},
		{"native sidecar", meshedPod(native), "", ""},
		{"no arguments", meshedPod(withArgs()), "", ""},
		{"own command line", meshedPod(withArgs("sh", "-c", "proxy router")), "", ""},
		{"router", meshedPod(withArgs("proxy", "router")), OtherProxyType, "proxy type is router"},
		{"waypoint", meshedPod(withArgs("proxy", "waypoint", "--x")), OtherProxyType, "proxy type is waypoint"},
		{"native router", meshedPod(withArgs("proxy", "router"), native), OtherProxyType, "proxy type is router"},
		{"istio-init with NET_ADMIN", meshedPod(withInit(containerInit, capabilities("NET_RAW", "NET_ADMIN"))), InitContainer, "istio-init sets up"},
		{"istio-init, with the kernel's prefix", meshedPod(withInit(containerInit, capabilities("CAP_NET_ADMIN"))), InitContainer, "istio-init sets up"},
		{"istio-init with all", meshedPod(withInit(containerInit, capabilities("ALL"))), InitContainer, "istio-init sets up"},
		{"istio-init, privileged", meshedPod(withInit(containerInit, &corev1.SecurityContext{Privileged: new(true)})), InitContainer, "istio-init sets up"},
		{"istio-init, not privileged", meshedPod(withInit(containerInit, &corev1.SecurityContext{Privileged: new(false)})), "", ""},
		{"istio-init by name only", meshedPod(withInit(containerInit, nil)), "", ""},
		{"istio-init with another capability", meshedPod(withInit(containerInit, capabilities("NET_RAW"))), "", ""},
		{"istio-validation", meshedPod(withInit(containerValidation, nil)), "", ""},
		{"no proxy", meshedPod(func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }), NoProxy, "no container istio-proxy"},
		{"proxyless", meshedPod(withEnv(envDisableProxy, "true")), ProxyDisabled, "DISABLE_ENVOY"},
		{"proxyless, 1", meshedPod(withEnv(envDisableProxy, "1")), ProxyDisabled, "DISABLE_ENVOY"},
		{"not proxyless", meshedPod(withEnv(envDisableProxy, "false")), "", ""},
		{"proxyless, not a boolean", meshedPod(withEnv(envDisableProxy, "yes")), "", ""},
		{"proxyless, last one wins", meshedPod(withEnv(envDisableProxy, "true"), withEnv(envDisableProxy, "false")), "", ""},
		{"inject annotation false", meshedPod(annotated(annotationInject, "false")), InjectFalse, "inject is false"},
		{"inject annotation true", meshedPod(annotated(annotationInject, "true")), "", ""},
		{"inject label false", meshedPod(labelled(annotationInject, "false")), InjectFalse, "inject is false"},
		{"label over annotation", meshedPod(labelled(annotationInject, "true"), annotated(annotationInject, "false")), "", ""},
		{"label that is not a boolean over annotation", meshedPod(labelled(annotationInject, "no"), annotated(annotationInject, "false")), "", ""},
		{"inject: no", meshedPod(annotated(annotationInject, "no")), "", ""},
		{"not injected", meshedPod(func(p *corev1.Pod) { delete(p.Annotations, annotationStatus) }), NotInjected, "not injected"},
		{"empty status", meshedPod(annotated(annotationStatus, "")), "", ""},
		{"mode NONE", meshedPod(annotated(annotationInterceptionMode, "NONE")), InterceptionNone, "is NONE"},
		{"mode NONE with faults", meshedPod(annotated(annotationInterceptionMode, "NONE"), annotated(annotationIncludeInboundPorts, "x")), InterceptionNone, "is NONE"},
		{"mode none", meshedPod(annotated(annotationInterceptionMode, "none")), "", ""},
		{"not injected, with everything else", meshedPod(
			func(p *corev1.Pod) { delete(p.Annotations, annotationStatus) },
			withInit(containerInit, capabilities("NET_ADMIN")), withEnv(envDisableProxy, "true"),
		), NotInjected, "not injected"},
		{"empty pod", &corev1.Pod{}, NotInjected, "not injected"},
	} {
		calls := 0
		decision, err := Decide(PodOf(test.pod), config.DefaultSettings(), func() ([]netip.Addr, error) {
			calls++
			return only4, nil
		})
		got := decision.Exemption
		if test.cause == "" && calls != 1 || test.cause != "" && (calls != 0 || err != nil || !reflect.DeepEqual(decision, Decision{Exemption: got})) {
			t.Errorf("%s: %d calls for addresses, decided %+v, %v", test.name, calls, decision, err)
		}
		if got.Cause != test.cause || (got.Message == "") != (test.says == "") || !strings.Contains(got.Message, test.says) {
			t.Errorf("%s: got %+v, want %s: %s", test.name, got, test.cause, test.says)
		}
	}
}

// TestCapabilitySpellings uses other spellings than the documented ones. A runtime that
// upper-cases accepts them; an admission policy that compares bytes does not see them.
func TestCapabilitySpellings(t *testing.T) {
	t.Parallel()
	for _, name := range []corev1.Capability{
		"NET_ADM\u0131N", "CAP_NET_ADM\u0131N", // dotless i: its upper case is I
		"NET_ADM\u0130N", "NET_ADM\uff29N", "\uff2eET_ADMIN", // a dotted I, full-width letters
		"\u0391LL", "A\u217cL", "AL\u029f", // Greek alpha, the numeral l, a small capital l
		"net_admin", "Net_Admin", "cap_net_admin", "CAP_net_admin", "all", "All",
		"NET_ADMIN ", " NET_ADMIN", "NET_ADMIN\x00", "NET-ADMIN", "CAP_CAP_NET_ADMIN", "CAP_ALL", "",
	} {
		if got := Exclusion(PodOf(meshedPod(withInit(containerInit, capabilities(name))))); got != (Exemption{}) {
			t.Errorf("%q (% x) exempts the pod: %s", name, string(name), got.Message)
		}
	}
}
