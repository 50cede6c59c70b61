// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// meshedPod returns an injected pod with changes, and with the annotations that decide.
func meshedPod(changes ...func(*Pod)) Pod {
	pod := Pod{
		Annotations: map[string]string{annotationStatus: "{}"},
		Containers:  []Container{{Name: "app"}, {Name: containerProxy, ProxyType: "sidecar", Env: map[string]string{}}},
	}
	for _, change := range changes {
		change(&pod)
	}
	return pod.With(nil, pod.Annotations)
}

func annotated(key, value string) func(*Pod) {
	return func(p *Pod) { p.Annotations[key] = value }
}

// labelled comes after annotated.
func labelled(key, value string) func(*Pod) {
	return func(p *Pod) { *p = p.With(map[string]string{key: value}, p.Annotations) }
}

func withClass(name string) func(*Pod) {
	return func(p *Pod) { p.RuntimeClass = name }
}

func withEnv(name, value string) func(*Pod) {
	return func(p *Pod) { p.container(containerProxy).Env[name] = value }
}

func withGroups(groups ...int64) func(*Pod) {
	return func(p *Pod) { p.Groups = groups }
}

func withType(role string) func(*Pod) {
	return func(p *Pod) { p.container(containerProxy).ProxyType = role }
}

// withInit adds an init container after those that the pod has.
func withInit(name string, changes ...func(*Container)) func(*Pod) {
	return func(p *Pod) {
		c := Container{Name: name, Init: true}
		for _, change := range changes {
			change(&c)
		}
		last := slices.IndexFunc(p.Containers, func(c Container) bool { return !c.Init })
		p.Containers = slices.Insert(p.Containers, last, c)
	}
}

func netAdmin(c *Container)     { c.NetAdmin = true }
func keepsRunning(c *Container) { c.KeepsRunning = true }

func noNewPrivileges(c *Container) { c.NoNewPrivileges = true }

func runsAs(uid, gid int64) func(*Container) {
	return func(c *Container) { c.UID, c.GID = ID{Number: uid}, ID{Number: gid} }
}

// native makes the proxy a native sidecar.
func native(p *Pod) {
	proxy := *p.container(containerProxy)
	withoutProxy(p)
	withInit(containerProxy, func(c *Container) { *c = proxy; c.Init, c.KeepsRunning = true, true })(p)
}

func withoutProxy(p *Pod) {
	p.Containers = slices.DeleteFunc(p.Containers, func(c Container) bool { return c.Name == containerProxy })
}

func TestExemption(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		pod   Pod
		cause ExemptionCause // "" for a pod that is captured
		says  string         // part of the message
	}{
		{"meshed", meshedPod(), "", ""},
		{"native sidecar", meshedPod(native), "", ""},
		{"own command line", meshedPod(withType("")), "", ""},
		{"router", meshedPod(withType("router")), OtherProxyType, "proxy type is router"},
		{"waypoint", meshedPod(withType("waypoint")), OtherProxyType, "proxy type is waypoint"},
		{"native router", meshedPod(withType("router"), native), OtherProxyType, "proxy type is router"},
		{"istio-init with NET_ADMIN", meshedPod(withInit(containerInit, netAdmin)), InitContainer, "istio-init sets up"},
		{"istio-init by name only", meshedPod(withInit(containerInit)), "", ""},
		{"another init container with NET_ADMIN", meshedPod(withInit("setup", netAdmin)), "", ""},
		{"istio-validation", meshedPod(withInit(containerValidation)), "", ""},
		{"no proxy", meshedPod(withoutProxy), NoProxy, "no container istio-proxy"},
		{"proxyless", meshedPod(withEnv(envDisableProxy, "true")), ProxyDisabled, "DISABLE_ENVOY"},
		{"proxyless, 1", meshedPod(withEnv(envDisableProxy, "1")), ProxyDisabled, "DISABLE_ENVOY"},
		{"not proxyless", meshedPod(withEnv(envDisableProxy, "false")), "", ""},
		{"proxyless, not a boolean", meshedPod(withEnv(envDisableProxy, "yes")), "", ""},
		{"inject annotation false", meshedPod(annotated(annotationInject, "false")), InjectFalse, "inject is false"},
		{"inject annotation true", meshedPod(annotated(annotationInject, "true")), "", ""},
		{"inject label false", meshedPod(labelled(annotationInject, "false")), InjectFalse, "inject is false"},
		{"label over annotation", meshedPod(annotated(annotationInject, "false"), labelled(annotationInject, "true")), "", ""},
		{"label that is not a boolean over annotation", meshedPod(annotated(annotationInject, "false"), labelled(annotationInject, "no")), "", ""},
		{"inject: no", meshedPod(annotated(annotationInject, "no")), "", ""},
		{"not injected", meshedPod(func(p *Pod) { delete(p.Annotations, annotationStatus) }), NotInjected, "not injected"},
		{"empty status", meshedPod(annotated(annotationStatus, "")), "", ""},
		{"mode NONE", meshedPod(annotated(annotationInterceptionMode, "NONE")), InterceptionNone, "is NONE"},
		{"mode NONE with faults", meshedPod(annotated(annotationInterceptionMode, "NONE"), annotated(annotationIncludeInboundPorts, "x")), InterceptionNone, "is NONE"},
		{"mode none", meshedPod(annotated(annotationInterceptionMode, "none")), "", ""},
		{"not injected, with everything else", meshedPod(
			func(p *Pod) { delete(p.Annotations, annotationStatus) },
			withInit(containerInit, netAdmin), withEnv(envDisableProxy, "true"),
		), NotInjected, "not injected"},
		{"empty pod", Pod{}, NotInjected, "not injected"},
	} {
		decision, err := decideAt(test.pod, config.DefaultSettings(), only4)
		got := decision.Exemption
		if test.cause != "" && (err != nil || !reflect.DeepEqual(decision, Decision{Exemption: got})) {
			t.Errorf("%s: decided %+v, %v", test.name, decision, err)
		}
		if got.Cause != test.cause || (got.Message == "") != (test.says == "") || !strings.Contains(got.Message, test.says) {
			t.Errorf("%s: got %+v, want %s: %s", test.name, got, test.cause, test.says)
		}
	}
}
