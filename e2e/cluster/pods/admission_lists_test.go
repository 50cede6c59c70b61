// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// lists of the chart's values, each element of which is tried. The values are repeated
// here: an element that goes away there is missed.
var (
	forbiddenCapabilities = []string{"ALL", "BPF", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"}
	hiding                = []string{`\u`, `\U`, `\x`, "\\\n", "\\\r", "!!", "!<", "%TAG"}
	programTexts          = append([]string{
		"binaryPath", "binary_path", "configPath", "config_path", "customConfigFile", "custom_config_file",
		"proxyBootstrapTemplatePath", "proxy_bootstrap_template_path", "$(",
	}, hiding...)
	settingTexts = append([]string{
		"interceptionMode", "interception_mode", "DISABLE_ENVOY", "INVALID_DROP", "ISTIO_DUAL_STACK", "ISTIO_META_DNS_CAPTURE",
	}, hiding...)
	finalPrefixes = []string{
		"istio.io/", "inject.istio.io/", annotationNetworks, "proxy.istio.io/", "sidecar.istio.io/",
		"status.sidecar.istio.io/", "traffic.sidecar.istio.io/", "v1.multus-cni.io/",
	}
	weakValues = map[string]string{
		"sidecar.istio.io/inject":                          "false",
		"sidecar.istio.io/interceptionMode":                "NONE",
		"sidecar.istio.io/proxyImage":                      "local.test/proxy:1",
		"status.sidecar.istio.io/port":                     "15021",
		"traffic.sidecar.istio.io/includeInboundPorts":     "80",
		"traffic.sidecar.istio.io/excludeInboundPorts":     "15020,80",
		"traffic.sidecar.istio.io/excludeOutboundPorts":    "15020,80",
		"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8",
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.0.0.0/8",
		"traffic.sidecar.istio.io/excludeInterfaces":       "eth1",
		"traffic.sidecar.istio.io/kubevirtInterfaces":      "eth1",
		"istio.io/reroute-virtual-interfaces":              "eth1",
		"v1.multus-cni.io/default-network":                 "other",
	}
	weakVariables = map[string]string{
		"DISABLE_ENVOY": "true", "INVALID_DROP": "false", "ISTIO_DUAL_STACK": "false", "ISTIO_META_DNS_CAPTURE": "false", "ISTIO_META_INTERCEPTION_MODE": "NONE",
	}
	proxyFlags = []string{
		"--concurrency=2", "--domain=x", "--log_as_json", "--log_output_level=x", "--outlierLogPath=/x", "--proxyComponentLogLevel=x",
		"--proxyLogLevel=x", "--stsPort=1",
	}
	validationFlags = []string{
		"-b=x", "-c=x", "-d=x", "-i=x", "-k=x", "-m=x", "-o=x", "-p=x", "-q=x", "-u=x", "-x=x", "-z=x", "--log_as_json", "--log_output_level=x",
		"--native-nftables", "--run-validation", "--skip-rule-apply",
	}
	proxyVariables = []string{
		"CA_ADDR", "COMPLIANCE_POLICY", "DISABLE_ENVOY", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "GODEBUG", "GOMAXPROCS", "GOMEMLIMIT", "HOST_IP", "INSTANCE_IP",
		"INVALID_DROP", "ISTIO_CPU_LIMIT", "ISTIO_DUAL_STACK", "ISTIO_KUBE_APP_PROBERS", "ISTIO_META_", "ISTIO_PROMETHEUS_ANNOTATIONS", "JWT_POLICY",
		"MINIMUM_DRAIN_DURATION", "OTEL_RESOURCE_ATTRIBUTES", "PILOT_CERT_PROVIDER", "POD_NAME", "POD_NAMESPACE", "PROXY_CONFIG",
		"REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", "SERVICE_ACCOUNT", "TRUST_DOMAIN",
	}
	proxyMounts = []string{
		"/etc/istio/pod", "/etc/istio/proxy", "/var/lib/istio/data", "/var/run/secrets/credential-uds", "/var/run/secrets/istio", "/var/run/secrets/istio/crl",
		"/var/run/secrets/kubernetes.io/serviceaccount", "/var/run/secrets/tokens", "/var/run/secrets/workload-spiffe-credentials",
		"/var/run/secrets/workload-spiffe-uds",
	}
)

// listAttempts try each element of the policies' lists: what is refused one by one, what
// is allowed at once.
func listAttempts() (attempts []attempt) {
	try := func(policy, refused, name string, change func(*corev1.Pod)) {
		attempts = append(attempts, attempt{name: name, policy: policy, change: change, refused: refused})
	}
	for _, capability := range forbiddenCapabilities {
		try("capabilities", capable, capability, add(capability))
		try("capabilities", capable, "CAP_"+capability, func(p *corev1.Pod) {
			add("CAP_" + capability)(p)
			app(p).SecurityContext.AllowPrivilegeEscalation = nil // false is invalid beside CAP_SYS_ADMIN
		})
	}
	for _, capability := range []string{"ALL", "SETUID", "SETGID", "SETFCAP", "CAP_SETUID", "CAP_SETGID", "CAP_SETFCAP"} {
		try("identity", switching, capability, add(capability))
	}
	try("identity", switching, "without SETUID alone", drop("SETUID"))
	try("identity", switching, "without SETGID alone", drop("SETGID"))
	try("identity", "", "without both", drop("SETUID", "SETGID"))
	try("identity", switching, "by CAP_ names, which not each runtime knows", drop("CAP_SETUID", "CAP_SETGID"))

	for _, text := range programTexts {
		found := "must not contain " + strings.TrimRight(text, "\r\n") // kubectl prints these its own way
		try("proxy", found, fmt.Sprintf("%q by annotation", text), annotate("proxy.istio.io/config", "a"+text+"b"))
		try("proxy", found, fmt.Sprintf("%q by variable", text), env("PROXY_CONFIG", "a"+text+"b"))
	}
	for _, text := range settingTexts {
		try("settings", weak+"proxy.istio.io/config;", fmt.Sprintf("%q", text), annotate("proxy.istio.io/config", "a"+text+"b"))
	}
	for key, value := range weakValues {
		try("settings", weak+key+";", key, annotate(key, value))
	}
	for name, value := range weakVariables {
		try("settings", "variables of istio-proxy that weaken capture: "+name+";", name, env(name, value))
	}
	try("proxy", "does not mount: /dev/x;", "a device", device(proxy))
	try("proxy", "does not mount: /dev/x;", "a device of istio-validation", device(validation))

	try("proxy", "", "all flags of the proxy", func(p *corev1.Pod) { proxy(p).Args = append([]string{"proxy", "sidecar"}, proxyFlags...) })
	try("proxy", "", "all flags of istio-validation", func(p *corev1.Pod) { validation(p).Args = append([]string{"istio-iptables"}, validationFlags...) })
	try("proxy", "", "all variables", func(p *corev1.Pod) {
		for _, name := range proxyVariables {
			if name != "POD_NAMESPACE" { // it is there, from the field
				env(name, "x")(p)
			}
		}
	})
	try("proxy", "", "all mounts", func(p *corev1.Pod) {
		proxy(p).VolumeMounts = nil
		for _, path := range proxyMounts {
			proxy(p).VolumeMounts = append(proxy(p).VolumeMounts, corev1.VolumeMount{Name: "istio-data", MountPath: path})
		}
	})
	return attempts
}

func drop(capabilities ...corev1.Capability) func(*corev1.Pod) {
	return func(p *corev1.Pod) { app(p).SecurityContext.Capabilities.Drop = capabilities }
}

// device gives a container a block device, under which its programs could lie.
func device(of func(*corev1.Pod) *corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "block", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "block"},
		}})
		of(p).VolumeDevices = []corev1.VolumeDevice{{Name: "block", DevicePath: "/dev/x"}}
	}
}

// testLists wants the lists above to be the chart's.
func testLists(t *testing.T) {
	content, err := os.ReadFile("../../../deploy/chart/values.yaml")
	lab.Check(t, err)
	var values struct {
		Admission struct {
			Capabilities struct{ Forbidden []string }
			Identity     struct{ ProxyFlags, ValidationFlags, ProxyVariables, ForbiddenConfig, ProxyMounts []string }
			Settings     struct {
				Annotations, ForbiddenText, ProxyEnv map[string][]string
			}
			Changes struct{ Prefixes []string }
		}
	}
	lab.Check(t, yaml.Unmarshal(content, &values))
	a := values.Admission
	for name, lists := range map[string][2][]string{
		"capabilities.forbidden":   {a.Capabilities.Forbidden, forbiddenCapabilities},
		"identity.forbiddenConfig": {a.Identity.ForbiddenConfig, programTexts},
		"identity.proxyFlags":      {a.Identity.ProxyFlags, withoutValues(proxyFlags)},
		"identity.validationFlags": {a.Identity.ValidationFlags, withoutValues(validationFlags)},
		"identity.proxyVariables":  {a.Identity.ProxyVariables, proxyVariables},
		"identity.proxyMounts":     {a.Identity.ProxyMounts, proxyMounts},
		"settings.annotations":     {slices.Collect(maps.Keys(a.Settings.Annotations)), slices.Collect(maps.Keys(weakValues))},
		"settings.forbiddenText":   {a.Settings.ForbiddenText["proxy.istio.io/config"], settingTexts},
		"settings.proxyEnv":        {slices.Collect(maps.Keys(a.Settings.ProxyEnv)), slices.Collect(maps.Keys(weakVariables))},
		"changes.prefixes":         {a.Changes.Prefixes, finalPrefixes},
	} {
		if is, tried := slices.Sorted(slices.Values(lists[0])), slices.Sorted(slices.Values(lists[1])); !slices.Equal(is, tried) {
			t.Errorf("%s is %q, and tried are %q", name, is, tried)
		}
	}
}

func withoutValues(flags []string) (names []string) {
	for _, flag := range flags {
		name, _, valued := strings.Cut(flag, "=")
		if valued {
			name += "="
		}
		names = append(names, name)
	}
	return names
}

// testFinal adds, changes and removes annotations and labels of each prefix, of a pod that
// exists.
func testFinal(t *testing.T) {
	pod := injectedPod(t)
	fields := map[string]map[string]string{"annotations": pod.Annotations, "labels": pod.Labels}
	var keys []string
	for _, prefix := range finalPrefixes {
		key := strings.TrimSuffix(prefix, "/")
		if key != prefix {
			key = prefix + "x"
		}
		keys = append(keys, key)
		for _, present := range fields {
			present[key+"1"], present[key+"2"] = "x", "x"
		}
	}
	namespace, file := namespaceAlone("changes"), write(t, suite.JSON(t, pod))
	c.MustKubectl(t, "create", "-n", namespace, "-f", file)
	defer c.MustKubectl(t, "delete", "-n", namespace, "--now", "-f", file)
	for field := range fields {
		for _, key := range keys {
			for changed, value := range map[string]string{key + "0": `"y"`, key + "1": `"y"`, key + "2": "null"} {
				_, err := kubectl(t, "patch", "-n", namespace, "-f", file, "--dry-run=server",
					"--patch-file", write(t, fmt.Sprintf(`{"metadata": {%q: {%q: %s}}}`, field, changed, value)))
				if err := (verdict{"changes", "annotations and labels that decide on capture are final: " + changed + ";"}).check(err); err != nil {
					t.Errorf("%s: %s becomes %s: %v", field, changed, value, err)
				}
			}
		}
	}
}
