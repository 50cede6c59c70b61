// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

const (
	argumentsOf = "arguments that the injector does not write are in istio-proxy"
	stranger    = "not an image of the proxy, and so not exempt from capture: "
	digest      = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// proxyAttempts run other programs in the containers that are exempt from capture.
var proxyAttempts = []attempt{
	{name: "as istiod injects it", policy: "proxy"},
	{name: "classic", policy: "proxy", change: func(p *corev1.Pod) {
		proxy(p).RestartPolicy = nil
		proxy(p).Lifecycle = &corev1.Lifecycle{PostStart: hook("pilot-agent", "wait")}
		p.Spec.Containers = append(p.Spec.Containers, *proxy(p))
		p.Spec.InitContainers = p.Spec.InitContainers[:1]
	}},
	{name: "no proxy", policy: "proxy", change: func(p *corev1.Pod) { p.Spec.InitContainers = nil }},

	{name: "another tag", policy: "proxy", change: image("local.test/proxy:1.29-distroless")},
	{name: "a digest", policy: "proxy", change: image("local.test/proxy:1" + digest)},
	{name: "a repository that begins alike", policy: "proxy", change: image("local.test/proxy-evil:1"), refused: stranger + "istio-proxy;"},
	{name: "a repository below it", policy: "proxy", change: image("local.test/proxy/evil:1"), refused: stranger + "istio-proxy;"},
	{name: "a registry's port", policy: "proxy", change: image("local.test:5000/proxy:1"), refused: stranger + "istio-proxy;"},
	{name: "the image of istio-validation", policy: "proxy", change: func(p *corev1.Pod) { validation(p).Image = "local.test/proxy-evil:1" }, refused: stranger + "istio-validation;"},

	{name: "a command", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).Command = []string{"/bin/sh"} }, refused: "command or workingDir is set in "},
	{name: "a command of istio-validation", policy: "proxy", change: func(p *corev1.Pod) { validation(p).Command = []string{"/bin/sh"} }, refused: "command or workingDir is set in "},
	{name: "a working directory", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).WorkingDir = "/tmp" }, refused: "command or workingDir is set in "},

	{name: "another program of the image", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).Args = []string{"request", "GET", "/"} }, refused: argumentsOf},
	{name: "no arguments", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).Args = nil }, refused: argumentsOf},
	{name: "another type", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).Args[1] = "router" }, refused: argumentsOf},
	{name: "another type", policy: "settings", change: func(p *corev1.Pod) { proxy(p).Args[1] = "router" }, refused: "istio-proxy is no sidecar"},
	{name: "another flag", policy: "proxy", change: proxyArgs("--templateFile=/x"), refused: argumentsOf},
	{name: "another flag and its value", policy: "proxy", change: proxyArgs("--templateFile", "/x"), refused: argumentsOf},
	{name: "a short flag", policy: "proxy", change: proxyArgs("-c", "/x"), refused: argumentsOf},
	{name: "a flag that begins alike", policy: "proxy", change: proxyArgs("--domainFile=/x"), refused: argumentsOf},
	{name: "a flag with a look-alike", policy: "proxy", change: proxyArgs("--ｄomain=x"), refused: argumentsOf},
	{name: "an argument that the kubelet makes a flag", policy: "proxy", change: proxyArgs("$(ISTIO_META_X)"), refused: argumentsOf},
	{name: "the same after a switch", policy: "proxy", change: proxyArgs("--log_as_json", "$(ISTIO_META_X)"), refused: argumentsOf},
	{name: "the same as a value", policy: "proxy", change: proxyArgs("--concurrency", "$(ISTIO_META_X)"), refused: argumentsOf},
	{name: "a flag for a value", policy: "proxy", change: proxyArgs("--domain", "--domain", "$(ISTIO_META_X)"), refused: argumentsOf},
	{name: "two flags in one argument", policy: "proxy", change: proxyArgs("--log_as_json\n--domain", "x"), refused: argumentsOf},
	{name: "no validation", policy: "proxy", change: func(p *corev1.Pod) { validation(p).Args = validation(p).Args[:1] }, refused: "arguments that the injector does not write are in istio-validation"},
	{name: "rules instead of validation", policy: "proxy", change: func(p *corev1.Pod) { validation(p).Args = append(validation(p).Args, "--cleanup-only") }, refused: "arguments that the injector does not write are in istio-validation"},
	{name: "the proxy as istio-validation", policy: "proxy", change: func(p *corev1.Pod) { validation(p).Args = proxy(p).Args }, refused: "arguments that the injector does not write are in istio-validation"},
	{name: "an init container that ends", policy: "proxy", change: func(p *corev1.Pod) {
		proxy(p).RestartPolicy, proxy(p).Lifecycle, proxy(p).StartupProbe, proxy(p).ReadinessProbe = nil, nil, nil, nil
	}, refused: "istio-proxy is an init container that ends"},

	{name: "a hook after the start", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).Lifecycle.PostStart = hook("/bin/sh", "-c", "x") }, refused: "runs a command in istio-proxy"},
	{name: "a hook before the end", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).Lifecycle.PreStop = hook("pilot-agent", "request", "GET", "/") }, refused: "runs a command in istio-proxy"},
	{name: "a hook that waits", policy: "proxy", change: func(p *corev1.Pod) {
		proxy(p).Lifecycle.PreStop = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
	}},
	{name: "a readiness probe", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).ReadinessProbe = probe() }, refused: "runs a command in istio-proxy"},
	{name: "a liveness probe", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).LivenessProbe = probe() }, refused: "runs a command in istio-proxy"},
	{name: "a startup probe", policy: "proxy", change: func(p *corev1.Pod) { proxy(p).StartupProbe = probe() }, refused: "runs a command in istio-proxy"},

	{name: "a library", policy: "proxy", change: env("LD_PRELOAD", "/x.so"), refused: "does not write: LD_PRELOAD;"},
	{name: "a library of istio-validation", policy: "proxy", change: func(p *corev1.Pod) { validation(p).Env = []corev1.EnvVar{{Name: "LD_AUDIT", Value: "/x.so"}} }, refused: "does not write: LD_AUDIT;"},
	{name: "a path", policy: "proxy", change: env("PATH", "/x"), refused: "does not write: PATH;"},
	{name: "a bootstrap", policy: "proxy", change: env("ISTIO_BOOTSTRAP_OVERRIDE", "/x"), refused: "does not write: ISTIO_BOOTSTRAP_OVERRIDE;"},
	{name: "a variable that begins alike", policy: "proxy", change: env("PROXY_CONFIG_FILE", "/x"), refused: "does not write: PROXY_CONFIG_FILE;"},
	{name: "metadata", policy: "proxy", change: env("ISTIO_META_ANY", "x")},
	{name: "variables from elsewhere", policy: "proxy", change: func(p *corev1.Pod) {
		proxy(p).EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}}}}
	}, refused: "does not write: envFrom;"},
	{name: "a namespace of its own", policy: "proxy", change: env("POD_NAMESPACE", "--templateFile=/x"), refused: "does not write: POD_NAMESPACE;"},

	{name: "a binary", policy: "proxy", change: env("PROXY_CONFIG", `{"binaryPath": "/x"}`), refused: "must not contain binaryPath"},
	{name: "a binary in escapes", policy: "proxy", change: env("PROXY_CONFIG", `{"binary\u0050ath": "/x"}`), refused: `must not contain \u`},
	{name: "a binary in parts", policy: "proxy", change: env("PROXY_CONFIG", `{"binary$(ISTIO_META_X)": "/x"}`), refused: "must not contain $("},
	{name: "a binary in base64", policy: "proxy", change: annotate("proxy.istio.io/config", `!!binary YmluYXJ5UGF0aA==: /x`), refused: "must not contain !!"},
	{name: "a binary on two lines", policy: "proxy", change: annotate("proxy.istio.io/config", "\"binary\\\n  Path\": /x"), refused: `must not contain \`},
	{name: "a configuration from elsewhere", policy: "proxy", change: func(p *corev1.Pod) {
		proxy(p).Env = append(proxy(p).Env, corev1.EnvVar{Name: "PROXY_CONFIG", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['x']"}}})
	}, refused: "does not write: PROXY_CONFIG;"},
	{name: "a binary by annotation", policy: "proxy", change: annotate("proxy.istio.io/config", "binaryPath: /x"), refused: "must not contain binaryPath"},

	{name: "a volume over its programs", policy: "proxy", change: func(p *corev1.Pod) {
		proxy(p).VolumeMounts = append(proxy(p).VolumeMounts, corev1.VolumeMount{Name: "istio-data", MountPath: "/usr/local/bin"})
	}, refused: "does not mount: /usr/local/bin;"},
	{name: "a volume by a detour", policy: "proxy", change: func(p *corev1.Pod) {
		proxy(p).VolumeMounts[2].MountPath = "/etc/istio/proxy/../../../usr/local/bin"
	}, refused: "does not mount: /etc/istio/proxy/../"},
	{name: "a volume of istio-validation", policy: "proxy", change: func(p *corev1.Pod) {
		validation(p).VolumeMounts = []corev1.VolumeMount{{Name: "istio-data", MountPath: "/lib"}}
	}, refused: "does not mount: /lib;"},
	{name: "a volume that the application writes", policy: "identity", change: func(p *corev1.Pod) {
		app(p).VolumeMounts = []corev1.VolumeMount{{Name: "istio-envoy", MountPath: "/x"}}
	}, refused: "these could write to volumes of the proxy: app;"},
	{name: "a volume that the application reads", policy: "identity", change: func(p *corev1.Pod) {
		app(p).VolumeMounts = []corev1.VolumeMount{{Name: "istio-envoy", MountPath: "/x", ReadOnly: true}}
	}},
}

func hook(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

func probe() *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh"}}}}
}

func image(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { proxy(p).Image = name }
}

func env(name, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { proxy(p).Env = append(proxy(p).Env, corev1.EnvVar{Name: name, Value: value}) }
}

func annotate(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

// testImages changes the images of an existing pod.
func testImages(t *testing.T) {
	pod := injectedPod(t)
	setup := *validation(pod)
	setup.Name = "istio-init"
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, setup)
	file := write(t, suite.JSON(t, pod))
	for _, namespace := range []string{namespaceAlone("proxy-image"), namespaceAlone("changes"), namespaceOutside} {
		c.MustKubectl(t, "create", "-n", namespace, "-f", file)
		defer c.MustKubectl(t, "delete", "-n", namespace, "--now", "-f", file)
	}
	for _, tt := range []struct{ policy, container, image, refused string }{
		{"proxy-image", "istio-proxy", "local.test/proxy-evil:1", stranger + "istio-proxy;"},
		{"proxy-image", "istio-validation", "elsewhere.test/proxy:1", stranger + "istio-validation;"},
		{"proxy-image", "istio-proxy", "local.test/proxy:2", ""},
		{"proxy-image", "app", "elsewhere.test/app:1", ""},
		{"changes", "istio-proxy", "local.test/proxy:2", "the image is final of istio-proxy;"},
		{"changes", "istio-validation", "local.test/proxy:2", "the image is final of istio-validation;"},
		{"changes", "istio-init", "local.test/proxy:2", "the image is final of istio-init;"},
		{"changes", "app", "elsewhere.test/app:1", ""},
	} {
		t.Run(tt.policy+" "+tt.container+" "+tt.image, func(t *testing.T) {
			list := "initContainers"
			if tt.container == "app" {
				list = "containers"
			}
			patch := write(t, `{"spec": {"`+list+`": [{"name": "`+tt.container+`", "image": "`+tt.image+`"}]}}`)
			exchange := func(namespace string) error {
				_, err := kubectl(t, "patch", "-n", namespace, "-f", file, "--dry-run=server", "--patch-file", patch)
				return err
			}
			want := verdict{}
			if tt.refused != "" {
				want = verdict{tt.policy, tt.refused}
			}
			waitForPolicy(t, func() error { return want.check(exchange(namespaceAlone(tt.policy))) })
			if err := exchange(namespaceOutside); err != nil {
				t.Errorf("outside the mesh: %v", err)
			}
		})
	}
}
