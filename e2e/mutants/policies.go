// SPDX-License-Identifier: Apache-2.0

package main

// policyMutants break the admission policies. Their tests need an API server, and no
// nodes.
var policyMutants = []mutant{
	{
		name: "misspelled-capability-is-admitted",
		file: "deploy/chart/templates/admission/capabilities.yaml",
		from: "size(variables.misnamed) == 0",
		to:   "size(variables.misnamed) >= 0",
		by:   admission("TestAdmission/letters/capabilities_dotless_i"),
	},
	{
		name: "image-that-begins-alike-is-the-proxys",
		file: "deploy/chart/templates/admission/_parts.tpl",
		from: "c.image.startsWith(name)\n  && c.image.substring(size(name)).matches('^(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$'))",
		to:   "c.image.startsWith(name))",
		by:   admission("TestAdmission/proxy"),
	},
	{
		name: "proxy-runs-any-command",
		file: "deploy/chart/templates/admission/proxy.yaml",
		from: "size(c.?command.orValue([])) > 0 || has(c.workingDir)",
		to:   "has(c.workingDir)",
		by:   admission("TestAdmission/proxy/proxy_a_command"),
	},
	{
		name: "validation-that-keeps-running-is-exempt",
		file: "deploy/chart/templates/admission/_parts.tpl",
		from: "c.name == 'istio-validation' && !has(c.restartPolicy)",
		to:   "c.name == 'istio-validation'",
		by:   admission("TestAdmission/policies/running-validation"),
	},
	{
		name: "application-runs-as-the-proxy",
		file: "deploy/chart/templates/admission/identity.yaml",
		from: "in variables.proxyUIDs + [0, -1]",
		to:   "in [0, -1]",
		by:   admission("TestAdmission/letters/identity_the_uid_of_the_proxy"),
	},
	{
		name: "annotation-takes-a-pod-out-of-capture",
		file: "deploy/chart/templates/admission/settings.yaml",
		from: "size(variables.weakAnnotations) == 0",
		to:   "size(variables.weakAnnotations) >= 0",
		by:   admission("TestAdmission/letters"),
	},
	{
		name: "annotation-is-changed-after-admission",
		file: "deploy/chart/templates/admission/changes.yaml",
		from: "size(variables.changed) == 0",
		to:   "size(variables.changed) >= 0",
		by:   admission("TestAdmission/policies"),
	},
	{
		name: "agent-posts-events-of-another-node",
		file: "deploy/chart/templates/events.yaml",
		from: "&& [event.?source.?host.orValue('')] == variables.node\n",
		to:   "&& size(variables.node) == 1\n",
		by:   admission("TestAgentPolicies/events/no_host"),
	},
	{
		name: "agent-evicts-whatever-has-the-name",
		file: "deploy/chart/templates/evict.yaml",
		from: "object.?deleteOptions.?preconditions.?uid.orValue('') != ''",
		to:   "object.?deleteOptions.?preconditions.?uid.orValue('') != '-'",
		by:   admission("TestAgentPolicies/evictions/by_name"),
	},
	{
		name: "proxy-of-another-mesh-keeps-net-admin",
		file: "deploy/chart/templates/admission/capabilities.yaml",
		from: "exists(key, key == 'linkerd.io/proxy-version' || key",
		to:   "exists(key, key",
		by:   by(unit, "deploy", "TestTransparentProxies"),
	},
	{
		name: "name-and-mode-of-istio-suffice-for-net-admin",
		file: "deploy/chart/templates/admission/capabilities.yaml",
		from: "&& 'sidecar.istio.io/status' in ",
		to:   "|| 'sidecar.istio.io/status' in ",
		by:   admission("TestAdmission/letters/capabilities_TPROXY_of_a_pod_that_is_not_Istio's"),
	},
	{
		name: "pods-are-admitted-while-a-policy-fails",
		file: "deploy/chart/templates/admission/capabilities.yaml",
		from: "failurePolicy: Fail",
		to:   "failurePolicy: Ignore",
		by:   by(unit, "deploy", "TestPoliciesFailClosed"),
	},
	{
		name: "policy-is-not-bound",
		file: "deploy/chart/templates/admission/_parts.tpl",
		from: "policyName: capture-cni-{{ .policy }}",
		to:   "policyName: {{ .policy }}",
		by:   by(unit, "deploy", "TestPoliciesFailClosed"),
	},
	{
		name: "pod-without-our-network-is-admitted",
		file: "deploy/chart/templates/admission/settings.yaml",
		from: "\"capture-cni.underMultus\")) \"true\" }}\n  # Multus reads JSON",
		to:   "\"capture-cni.underMultus\")) \"none\" }}\n  # Multus reads JSON",
		by:   by(unit, "deploy", "TestNetworksAnnotation"),
	},
	{
		name: "policies-allow-any-image-of-a-registry",
		file: "deploy/chart/values.schema.json",
		from: `"proxyImages": {"type": "array", "items": {"type": "string", "pattern": "^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:`,
		to:   `"proxyImages": {"type": "array", "items": {"type": "string", "pattern": "^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]*)+(:`,
		by:   by(unit, "deploy", "TestProxyImages"),
	},
	{
		name: "policies-miss-an-annotation",
		file: "deploy/chart/values.yaml",
		from: "      traffic.sidecar.istio.io/excludeInterfaces: [\"\"]\n",
		to:   "",
		by:   by(unit, "e2e/project", "TestAdmissionSettings"),
	},
	{
		name: "agents-events-have-no-policy",
		file: "deploy/chart/templates/events.yaml",
		from: `{{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}`,
		to:   `{{- if semverCompare ">=1.40-0" .Capabilities.KubeVersion.Version }}`,
		by:   by(unit, "deploy", "TestAgentsPolicies"),
	},
}
