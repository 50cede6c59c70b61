// SPDX-License-Identifier: Apache-2.0

package podfields_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

// TestExemption spells the fields that exempt a pod in the ways that Kubernetes knows.
func TestExemption(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		pod   *corev1.Pod
		cause capture.ExemptionCause // "" for a pod that is captured
	}{
		{"meshed", meshedPod(), ""},
		{"native sidecar", meshedPod(native), ""},
		{"no arguments", meshedPod(withArgs()), ""},
		{"one argument", meshedPod(withArgs("proxy")), ""},
		{"own command line", meshedPod(withArgs("sh", "-c", "proxy router")), ""},
		{"own command line of two words", meshedPod(withArgs("run", "router")), ""},
		{"router", meshedPod(withArgs("proxy", "router")), capture.OtherProxyType},
		{"waypoint", meshedPod(withArgs("proxy", "waypoint", "--x")), capture.OtherProxyType},
		{"native router", meshedPod(withArgs("proxy", "router"), native), capture.OtherProxyType},
		{"istio-init with NET_ADMIN", meshedPod(withInit("istio-init", capabilities("NET_RAW", "NET_ADMIN"))), capture.InitContainer},
		{"istio-init, with the kernel's prefix", meshedPod(withInit("istio-init", capabilities("CAP_NET_ADMIN"))), capture.InitContainer},
		{"istio-init with all", meshedPod(withInit("istio-init", capabilities("ALL"))), capture.InitContainer},
		{"istio-init, privileged", meshedPod(withInit("istio-init", &corev1.SecurityContext{Privileged: new(true)})), capture.InitContainer},
		{"istio-init, not privileged", meshedPod(withInit("istio-init", &corev1.SecurityContext{Privileged: new(false)})), ""},
		{"istio-init by name only", meshedPod(withInit("istio-init", nil)), ""},
		{"istio-init with another capability", meshedPod(withInit("istio-init", capabilities("NET_RAW"))), ""},
		{"istio-init without a capability", meshedPod(withInit("istio-init", &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"NET_ADMIN"}},
		})), ""},
		{"no proxy", meshedPod(func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }), capture.NoProxy},
		{"proxyless", meshedPod(withEnv(disableProxy, "true")), capture.ProxyDisabled},
		{"proxyless, last one wins", meshedPod(withEnv(disableProxy, "true"), withEnv(disableProxy, "false")), ""},
		{"inject annotation false", meshedPod(annotated(inject, "false")), capture.InjectFalse},
		{"inject label false", meshedPod(labelled(inject, "false")), capture.InjectFalse},
		{"label over annotation", meshedPod(labelled(inject, "true"), annotated(inject, "false")), ""},
		{"label that is not a boolean over annotation", meshedPod(labelled(inject, "no"), annotated(inject, "false")), ""},
		{"not injected", meshedPod(func(p *corev1.Pod) { delete(p.Annotations, status) }), capture.NotInjected},
		{"mode NONE", meshedPod(annotated(mode, "NONE")), capture.InterceptionNone},
		{"empty pod", &corev1.Pod{}, capture.NotInjected},
	} {
		if got := capture.ExemptionOf(podfields.Of(tt.pod), config.Meshes()); got.Cause != tt.cause {
			t.Errorf("%s: got %+v, want %q", tt.name, got, tt.cause)
		}
	}
	const longest = 8 << 10
	long := capture.ExemptionOf(podfields.Of(meshedPod(withArgs("proxy", strings.Repeat("r", 1<<20)))), config.Meshes())
	if long.Cause != capture.OtherProxyType || len(long.Message) > longest {
		t.Errorf("exempt for %s in %d bytes", long.Cause, len(long.Message))
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
		pod := podfields.Of(meshedPod(withInit("istio-init", capabilities(name))))
		if got := capture.ExemptionOf(pod, config.Meshes()); got != (capture.Exemption{}) {
			t.Errorf("%q (% x) exempts the pod: %s", name, string(name), got.Message)
		}
	}
}

// TestIDs reads the uid and gid of containers with and without a security context of
// their own.
func TestIDs(t *testing.T) {
	t.Parallel()
	type ids struct{ uid, gid *int64 }
	id := func(n int64) *int64 { return &n }
	for name, tt := range map[string]struct {
		pod, container *ids
		uid, gid       capture.ID
	}{
		"none":                    {},
		"empty contexts":          {pod: &ids{}, container: &ids{}},
		"container":               {nil, &ids{id(5), id(6)}, capture.ID{Number: 5}, capture.ID{Number: 6}},
		"pod":                     {&ids{id(7), id(8)}, nil, capture.ID{Number: 7, FromPod: true}, capture.ID{Number: 8, FromPod: true}},
		"container over pod":      {&ids{id(7), id(8)}, &ids{id(5), id(6)}, capture.ID{Number: 5}, capture.ID{Number: 6}},
		"uid alone over pod":      {&ids{id(7), id(8)}, &ids{id(9), nil}, capture.ID{Number: 9}, capture.ID{Number: 8, FromPod: true}},
		"gid alone over pod":      {&ids{id(7), id(8)}, &ids{nil, id(9)}, capture.ID{Number: 7, FromPod: true}, capture.ID{Number: 9}},
		"root over pod":           {&ids{id(7), id(8)}, &ids{id(0), id(0)}, capture.ID{}, capture.ID{}},
		"root of the pod":         {&ids{id(0), id(0)}, nil, capture.ID{FromPod: true}, capture.ID{FromPod: true}},
		"the pod's uid by choice": {&ids{id(7), id(8)}, &ids{id(7), id(8)}, capture.ID{Number: 7}, capture.ID{Number: 8}},
		"large":                   {nil, &ids{id(4294967294), id(2147483648)}, capture.ID{Number: 4294967294}, capture.ID{Number: 2147483648}},
	} {
		pod := meshedPod()
		if tt.pod != nil {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: tt.pod.uid, RunAsGroup: tt.pod.gid}
		}
		if tt.container != nil {
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: tt.container.uid, RunAsGroup: tt.container.gid}
		}
		if got := podfields.Of(pod).Containers[0]; got.UID != tt.uid || got.GID != tt.gid {
			t.Errorf("%s: got %+v and %+v, want %+v and %+v", name, got.UID, got.GID, tt.uid, tt.gid)
		}
	}
}

// TestValidation recognizes istio-validation, which may share the proxy's uid, by its
// restart policy.
func TestValidation(t *testing.T) {
	t.Parallel()
	settings := config.DefaultSettings()
	settings.SharedProxyUID = config.SharedUIDRefuse
	for policy, refused := range map[corev1.ContainerRestartPolicy]bool{
		"": false, corev1.ContainerRestartPolicyNever: false, corev1.ContainerRestartPolicyOnFailure: false, corev1.ContainerRestartPolicyAlways: true,
	} {
		pod := meshedPod(withInit("istio-validation", &corev1.SecurityContext{RunAsUser: new(int64(1337))}))
		if policy != "" {
			pod.Spec.InitContainers[0].RestartPolicy = &policy
		}
		_, err := capture.Decide(podfields.Of(pod), settings)
		if (err != nil) != refused {
			t.Errorf("restart policy %q: %v", policy, err)
		}
	}
}

// TestValueFrom warns of a variable whose value only the kubelet knows.
func TestValueFrom(t *testing.T) {
	t.Parallel()
	decision, err := capture.Decide(podfields.Of(meshedPod(func(p *corev1.Pod) {
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: dnsCapture, ValueFrom: &corev1.EnvVarSource{}}}
	})), config.DefaultSettings())
	if err != nil || decision.Intent.CaptureDNS || !slices.ContainsFunc(decision.Warnings, func(w string) bool { return strings.Contains(w, "set by valueFrom") }) {
		t.Errorf("got %+v, %v", decision, err)
	}
}

// TestNetRaw wants a container to be told apart that can send past netfilter.
func TestNetRaw(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	drops := func(names ...corev1.Capability) *corev1.Capabilities { return &corev1.Capabilities{Drop: names} }
	for name, tt := range map[string]struct {
		context *corev1.SecurityContext
		raw     bool
	}{
		"no context":         {nil, true},
		"nothing dropped":    {&corev1.SecurityContext{}, true},
		"another dropped":    {&corev1.SecurityContext{Capabilities: drops("CHOWN")}, true},
		"all dropped":        {&corev1.SecurityContext{Capabilities: drops("ALL")}, false},
		"dropped by name":    {&corev1.SecurityContext{Privileged: &no, Capabilities: drops("NET_RAW")}, false},
		"another spelling":   {&corev1.SecurityContext{Capabilities: drops("CAP_NET_RAW", "net_raw", "all")}, true}, // containerd drops only the last two
		"privileged":         {&corev1.SecurityContext{Privileged: &yes, Capabilities: drops("ALL")}, true},
		"added again":        {&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_RAW"}}}, true},
		"an admin":           {&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"net_admin"}}}, true},
		"another capability": {&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"CHOWN"}}}, false},
	} {
		pod := meshedPod()
		pod.Spec.Containers[0].SecurityContext = tt.context
		if got := !podfields.Of(pod).Containers[0].NoNetRaw; got != tt.raw {
			t.Errorf("%s: it can: %v", name, got)
		}
	}
}
