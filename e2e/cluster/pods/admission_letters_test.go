// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

const (
	misnamed  = "with capabilities whose names are not in the letters A to Z and _: app;"
	capable   = "able to change or bypass the capture rules: app;"
	switching = "these could become the proxy by SETUID or SETGID: app;"
	weak      = "annotations that weaken capture: "
)

// letterAttempts spell names and values that a policy compares with other
// letters: those whose upper or lower case is ASCII (U+0131, U+017F, U+212A),
// look-alikes, and letters of the other case.
var letterAttempts = []attempt{
	{name: "NET_ADMIN", policy: "capabilities", change: add("NET_ADMIN"), refused: capable},
	{name: "dotless i", policy: "capabilities", change: add("NET_ADM\u0131N"), refused: misnamed},
	{name: "dotless i in small letters", policy: "capabilities", change: add("net_adm\u0131n"), refused: misnamed},
	{name: "long s", policy: "capabilities", change: add("\u017fYS_ADMIN"), refused: misnamed},
	{name: "long s after CAP_", policy: "capabilities", change: add("CAP_\u017fYS_ADMIN"), refused: misnamed},
	{name: "Cyrillic A", policy: "capabilities", change: add("NET_\u0410DMIN"), refused: misnamed},
	{name: "wide letters", policy: "capabilities", change: add("\uff21\uff2c\uff2c"), refused: misnamed},
	{name: "a zero-width space", policy: "capabilities", change: add("NET_ADMIN\u200b"), refused: misnamed},
	{name: "a line break", policy: "capabilities", change: add("NET_ADMIN\n"), refused: misnamed},
	{name: "a space", policy: "capabilities", change: add(" NET_ADMIN"), refused: misnamed},
	{name: "small letters", policy: "capabilities", change: add("net_admin"), refused: misnamed},
	{name: "with CAP_", policy: "capabilities", change: add("CAP_NET_ADMIN"), refused: capable},
	{name: "with Cap_", policy: "capabilities", change: add("Cap_NET_ADMIN"), refused: misnamed},
	{name: "nothing", policy: "capabilities", change: add(""), refused: misnamed},
	{name: "a harmless one", policy: "capabilities", change: add("NET_BIND_SERVICE")},
	{name: "of an init container", policy: "capabilities", change: func(p *corev1.Pod) {
		setup := *app(p)
		setup.Name = "setup"
		setup.SecurityContext = setup.SecurityContext.DeepCopy()
		setup.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADM\u0131N"}
		p.Spec.InitContainers = append(p.Spec.InitContainers, setup)
	}, refused: "in the letters A to Z and _: setup;"},
	{name: "of the proxy under TPROXY", policy: "capabilities", change: func(p *corev1.Pod) {
		p.Annotations["sidecar.istio.io/interceptionMode"] = "TPROXY"
		proxy(p).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADM\u0131N"}
	}, refused: "in the letters A to Z and _: istio-proxy;"},
	{name: "TPROXY in other letters", policy: "capabilities", change: func(p *corev1.Pod) {
		p.Annotations["sidecar.istio.io/interceptionMode"] = "tproxy"
		proxy(p).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	}, refused: "able to change or bypass the capture rules: istio-proxy;"},
	{name: "TPROXY", policy: "capabilities", change: transparent()},
	{name: "TPROXY of a pod that is not Istio's", policy: "capabilities", change: func(p *corev1.Pod) {
		transparent()(p)
		delete(p.Annotations, "sidecar.istio.io/status")
	}, refused: "able to change or bypass the capture rules: istio-proxy;"},
	{name: "TPROXY of Linkerd's pod", policy: "capabilities", change: transparent("linkerd.io/proxy-version"), refused: "able to change or bypass the capture rules: istio-proxy;"},
	{name: "TPROXY of Consul's pod", policy: "capabilities", change: transparent("consul.hashicorp.com/transparent-proxy-status"), refused: "able to change or bypass the capture rules: istio-proxy;"},
	{name: "TPROXY of Kuma's pod", policy: "capabilities", change: transparent("kuma.io/sidecar-injected"), refused: "able to change or bypass the capture rules: istio-proxy;"},
	{name: "TPROXY of a pod with a fence", policy: "capabilities", change: transparent("capture-cni.io/fence", "capture-cni.io/fence-allow")},
	{name: "TPROXY of a pod with own keys", policy: "capabilities", change: transparent("capture-cni.io/outbound-port"), refused: "able to change or bypass the capture rules: istio-proxy;"},
	{name: "drop in look-alikes", policy: "capabilities", change: func(p *corev1.Pod) {
		app(p).SecurityContext.Capabilities.Drop = []corev1.Capability{"\uff21LL"}
	}, refused: "with NET_RAW, which some runtimes grant by default and which bypasses the capture rules: app;"},

	{name: "long s", policy: "identity", change: add("\u017fETUID"), refused: switching},
	{name: "dotless i", policy: "identity", change: add("SETU\u0131D"), refused: switching},
	{name: "drop in look-alikes", policy: "identity", change: func(p *corev1.Pod) {
		app(p).SecurityContext.Capabilities.Drop = []corev1.Capability{"AL\u216c"}
	}, refused: switching},
	{name: "the uid of the proxy", policy: "identity", change: uid(1337), refused: "these could run as the proxy, or as root: app;"},
	{name: "a uid that ends in the same 32 bits", policy: "identity", change: uid(1<<32 + 1337), invalid: "must be between 0 and 2147483647"},
	{name: "a uid below 0", policy: "identity", change: uid(-1), invalid: "must be between 0 and 2147483647"},
	{name: "a name that looks like the proxy's", policy: "identity", change: name("\u0131stio-proxy"), invalid: "a lowercase RFC 1123 label"},
	{name: "the proxy's name in other letters", policy: "identity", change: name("Istio-Proxy"), invalid: "a lowercase RFC 1123 label"},

	{name: "an image that looks like the proxy's", policy: "proxy", change: image("local.test/prox\u0443:1"), refused: stranger + "istio-proxy;"},
	{name: "an image in other letters", policy: "proxy", change: image("Local.test/proxy:1"), refused: stranger + "istio-proxy;"},
	{name: "a tag with a look-alike", policy: "proxy", change: image("local.test/proxy:\uff11"), refused: stranger + "istio-proxy;"},
	{name: "a short digest", policy: "proxy", change: image("local.test/proxy@sha256:00"), refused: stranger + "istio-proxy;"},
	{name: "a variable in other letters", policy: "proxy", change: env("ld_preload", "/x.so"), refused: "does not write: ld_preload;"},
	{name: "a hook with a look-alike", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).Lifecycle.PreStop = hook("pil\u043et-agent", "wait") }, refused: "runs a command in istio-proxy"},
	{name: "a path with a slash more", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).VolumeMounts[2].MountPath = "/etc/istio//proxy" }, refused: "does not mount: /etc/istio//proxy;"},

	{name: "NONE", policy: "settings", change: annotate("sidecar.istio.io/interceptionMode", "NONE"), refused: weak + "sidecar.istio.io/interceptionMode;"},
	{name: "none", policy: "settings", change: annotate("sidecar.istio.io/interceptionMode", "none"), refused: weak + "sidecar.istio.io/interceptionMode;"},
	{name: "NONE with a look-alike", policy: "settings", change: annotate("sidecar.istio.io/interceptionMode", "N\u039fNE"), refused: weak + "sidecar.istio.io/interceptionMode;"},
	{name: "NONE besides", policy: "settings", change: annotate("sidecar.istio.io/interceptionMode", "REDIRECT,NONE"), refused: weak + "sidecar.istio.io/interceptionMode;"},
	{name: "inject 0", policy: "settings", change: annotate("sidecar.istio.io/inject", "0"), refused: weak + "sidecar.istio.io/inject;"},
	{name: "inject f", policy: "settings", change: annotate("sidecar.istio.io/inject", "f"), refused: weak + "sidecar.istio.io/inject;"},
	{name: "inject False", policy: "settings", change: annotate("sidecar.istio.io/inject", "False"), refused: weak + "sidecar.istio.io/inject;"},
	{name: "inject FALSE by label", policy: "settings", change: label("sidecar.istio.io/inject", "FALSE"), refused: "labels that weaken capture: sidecar.istio.io/inject;"},
	{name: "inject F by label and true by annotation", policy: "settings", change: func(p *corev1.Pod) {
		annotate("sidecar.istio.io/inject", "true")(p)
		label("sidecar.istio.io/inject", "F")(p)
	}, refused: "labels that weaken capture: sidecar.istio.io/inject;"},
	{name: "inject true", policy: "settings", change: annotate("sidecar.istio.io/inject", "true")},
	{name: "a port in other digits", policy: "settings", change: annotate("traffic.sidecar.istio.io/excludeOutboundPorts", "\u0661\u0665"), refused: weak + "traffic.sidecar.istio.io/excludeOutboundPorts;"},
	{name: "a range in other digits", policy: "settings", change: annotate("traffic.sidecar.istio.io/includeOutboundIPRanges", "\uff0a"), refused: weak + "traffic.sidecar.istio.io/includeOutboundIPRanges;"},
	{name: "DISABLE_ENVOY t", policy: "settings", change: env("DISABLE_ENVOY", "t"), refused: "variables of istio-proxy that weaken capture: DISABLE_ENVOY;"},
	{name: "DISABLE_ENVOY by another variable", policy: "settings", change: env("DISABLE_ENVOY", "$(X)"), refused: "variables of istio-proxy that weaken capture: DISABLE_ENVOY;"},
	{name: "a mode in escapes", policy: "settings", change: annotate("proxy.istio.io/config", `{"interception\u004dode": "NONE"}`), refused: weak + "proxy.istio.io/config;"},
	{name: "a mode in short escapes", policy: "settings", change: annotate("proxy.istio.io/config", `{"interception\x4dode": "NONE"}`), refused: weak + "proxy.istio.io/config;"},
	{name: "a mode in base64", policy: "settings", change: annotate("proxy.istio.io/config", "!!binary aW50ZXJjZXB0aW9uTW9kZQ==: NONE"), refused: weak + "proxy.istio.io/config;"},
	{name: "a mode by a tag of its own", policy: "settings", change: annotate("proxy.istio.io/config", "%TAG !y! tag:yaml.org,2002:\n---\n!y!binary aW50ZXJjZXB0aW9uTW9kZQ==: NONE"), refused: weak + "proxy.istio.io/config;"},
	{name: "a mode on two lines", policy: "settings", change: annotate("proxy.istio.io/config", "\"interception\\\n  Mode\": NONE"), refused: weak + "proxy.istio.io/config;"},
	{name: "regular expressions", policy: "settings"},
	// Neither the plugin nor the injector reads such a key: it weakens nothing.
	{name: "a key with a look-alike", policy: "settings", change: annotate("s\u0130decar.istio.io/inject", "false")},
	{name: "a key in other letters", policy: "settings", change: annotate("sidecar.istio.io/INJECT", "false")},
}

func add(capability string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		app(p).SecurityContext.Capabilities.Add = []corev1.Capability{corev1.Capability(capability)}
	}
}

func uid(id int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { app(p).SecurityContext.RunAsUser = &id }
}

func name(of string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { app(p).Name = of }
}

func label(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

// testSubresources tries to change by subresources what an update may not change.
func testSubresources(t *testing.T) {
	namespace, pod := namespaceAlone("changes"), write(t, suite.JSON(t, injectedPod(t)))
	c.MustKubectl(t, "create", "-n", namespace, "-f", pod)
	defer c.MustKubectl(t, "delete", "-n", namespace, "--now", "-f", pod)
	patch := write(t, `{"metadata": {"annotations": {"sidecar.istio.io/interceptionMode": "NONE"}}}`)
	for _, subresource := range []string{"status", "resize", "ephemeralcontainers"} {
		t.Run(subresource, func(t *testing.T) {
			out, err := kubectl(t, "patch", "-n", namespace, "-f", pod, "--subresource="+subresource, "--dry-run=server", "--patch-file", patch, "-o", "json")
			if err != nil {
				if refusal := (verdict{"changes", "annotations and labels that decide on capture are final"}).check(err); refusal != nil {
					t.Error(refusal)
				}
			} else if mode := parsePod(t, out).Annotations["sidecar.istio.io/interceptionMode"]; mode != "REDIRECT" {
				t.Errorf("the mode is %q afterwards", mode)
			}
		})
	}
}

// transparent gives the proxy NET_ADMIN and mode TPROXY, next to marks of other meshes.
func transparent(marks ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations["sidecar.istio.io/interceptionMode"] = "TPROXY"
		proxy(p).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		for _, mark := range marks {
			p.Annotations[mark] = "1"
		}
	}
}
