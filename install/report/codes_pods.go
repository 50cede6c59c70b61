// SPDX-License-Identifier: Apache-2.0

package report

// Codes of findings about pods: the states of pods, causes for which pods are not captured, and
// faults of ADDs.
const (
	Captured      Code = "captured"
	Uncaptured    Code = "uncaptured"
	Drifted       Code = "drifted"
	Outdated      Code = "outdated"
	Changed       Code = "changed"
	Foreign       Code = "foreign"
	Obstructed    Code = "obstructed"
	InjectedLater Code = "injected_later"
	Unknown       Code = "unknown"
	Exempt        Code = "exempt"
	NotExamined   Code = "not examined"
	NotStarted    Code = "not started"
	NotReported   Code = "not reported"
	Gone          Code = "gone"
	NotInMesh     Code = "not in the mesh"
	NotScheduled  Code = "not scheduled"

	InitContainer     Code = "init_container"
	NoProxy           Code = "no_proxy"
	ProxyDisabled     Code = "disable_envoy"
	OtherProxyType    Code = "proxy_type"
	InjectFalse       Code = "inject_false"
	InterceptionNone  Code = "interception_none"
	NamespaceExcluded Code = "namespace_excluded"
	NotInjected       Code = "not_injected"
	HostNetwork       Code = "host-network"
	MeshOff           Code = "mesh-off"
	AmbientPod        Code = "ambient-pod"

	AddFailed        Code = "add-failed"
	AddAnnotations   Code = "add-annotations"
	AddRefused       Code = "add-refused"
	AddLookup        Code = "add-lookup"
	AddConfiguration Code = "add-configuration"
	AddInput         Code = "add-input"
	AddKernel        Code = "add-kernel"
	AddGone          Code = "add-gone"
	AddWarned        Code = "add-warned"
	IPv6Uncaptured   Code = "uncaptured-ipv6"
	SandboxFailed    Code = "sandbox-failed"
	Starting         Code = "starting"
)

// podCodes contains the meaning of each code in this file.
var podCodes = []Meaning{
	{Captured, "The pod has the desired rules.", "", "none"},
	{
		Uncaptured, "No capture rules apply to the pod.", "The pod started without the plugin, lost its rules, or is sandboxed.",
		"restart the pod, unless guard.policy=inPlace repairs it; if sandboxed, change its runtime class",
	},
	{
		Drifted, "A process with NET_ADMIN changed the pod's rules.", "",
		"find that process; restart the pod, unless guard.policy=inPlace repairs it",
	},
	{
		Outdated, "The pod's rules have another version or configuration.", "",
		"set guard.update=rules, or restart the pod when convenient",
	},
	{
		Changed, "The pod changed after its rules were set.", "A user edited annotations, or an IPv6 address came late.",
		"restart the pod when convenient",
	},
	{Foreign, "Another plugin's rules capture the pod.", "", "restart the pod once the other plugin is gone"},
	{
		Obstructed, "A container with NET_ADMIN added rules that can keep packets from the proxy.", "",
		"remove NET_ADMIN from that container",
	},
	{
		InjectedLater, "The pod looks injected, but started uncaptured.", "A user edited the running pod's annotations.",
		"delete the pod; the audit log names the user",
	},
	{
		Unknown, "The pod's state is unknown.", "Runtime, agent or kernel did not answer, or the plugin would now refuse the pod.",
		"wait a minute, then run kubectl capture-cni status",
	},
	{Exempt, "The pod is in a mesh, but not captured.", "", "read the cause's code"},
	{
		NotExamined, "The node's guard did not report the pod.", "The guard fails, the runtime omits the pod, or you lack pods/exec.",
		"read the guard's log",
	},
	{
		NotStarted, "The pod has no network yet.", "The sandbox's setup fails or still runs.",
		"run kubectl capture-cni explain for the pod",
	},
	{
		NotReported, "No guard reports the pod.", "The guard is disabled, fails, or lacks nftables, agentSocket, CRI socket or the node's Lease.",
		"set guard.enabled=true, backend nftables and a CRI socket",
	},
	{Gone, "The pod does not run.", "", "list the namespace's pods"},
	{NotInMesh, "The pod is in no captured mesh.", "Another code names the cause.", "none"},
	{NotScheduled, "The pod has no node.", "", "run kubectl describe pod; see deploy/guides/taint.md"},
	{
		InitContainer, "An init container captures the pod.", "",
		"let the mesh's chart inject for a CNI plugin (Istio: pilot.cni.enabled=true), and restart the pod",
	},
	{NoProxy, "The injected pod has no proxy.", "", "none, if intended"},
	{ProxyDisabled, "The proxy's container has DISABLE_ENVOY=true.", "", "none, if intended"},
	{OtherProxyType, "The container istio-proxy is a gateway, not a sidecar.", "", "none, if intended"},
	{InjectFalse, "The pod has sidecar.istio.io/inject=false.", "", "none, if intended; else correct the label or annotation"},
	{InterceptionNone, "The pod has interceptionMode NONE.", "", "none, if intended; else correct the annotation"},
	{NamespaceExcluded, "The pod's namespace is in excludeNamespaces.", "", "none, if intended; else correct excludeNamespaces"},
	{
		NotInjected, "No injector requested the pod's capture.",
		"At the pod's creation, injection or, for Consul, transparent proxy was not enabled.",
		"enable injection (istio-injection=enabled, istio.io/rev, linkerd.io/inject=enabled, kuma.io/sidecar-injection=enabled, " +
			"consul.hashicorp.com/connect-inject=true), and restart the pod",
	},
	{
		HostNetwork, "The node's network is never captured.", "The pod sets hostNetwork.",
		"none, if intended",
	},
	{MeshOff, "netconf.meshes omits the pod's mesh.", "", "add the mesh, if its pods should be captured"},
	{AmbientPod, "istio.io/dataplane-mode=ambient makes ztunnel capture the pod.", "", "none"},
	{AddFailed, "An ADD fails.", "", "correct the cause; the kubelet retries"},
	{AddAnnotations, "The plugin refuses the pod's annotations.", "", "correct the annotations in the message, and restart the pod"},
	{AddRefused, "The plugin refuses the pod.", "The pod would be wholly or partly uncaptured, or captured twice.", "correct the cause"},
	{
		AddLookup, "Neither agent nor API server returned the pod to the plugin.", "",
		"run kubectl capture-cni status; the kubelet retries",
	},
	{AddConfiguration, "netconf or the kubeconfig is invalid.", "", "correct netconf or the kubeconfig; the kubelet retries"},
	{
		AddInput, "The plugin could not read the runtime's request.", "The runtime's configuration or an earlier plugin is wrong.",
		"correct the cause; the kubelet retries",
	},
	{AddKernel, "The plugin could not apply the rules.", "", "load the module if one is missing, or choose another backend"},
	{AddGone, "The pod's network namespace vanished during ADD.", "", "none; the kubelet retries"},
	{
		AddWarned, "The pod's ADD has a warning.", "A setting has no effect, connections may fail, or traffic may bypass capture.",
		"follow the message",
	},
	{
		IPv6Uncaptured, "The pod's IPv6 is not captured.", "netconf.ipv6 or the proxy omits IPv6.",
		"none, if intended; else enable dual stack",
	},
	{SandboxFailed, "The runtime or another plugin, not capture-cni, fails the pod's sandbox.", "", "correct the cause"},
	{Starting, "The runtime is setting up the pod's network.", "", "run the command again in a minute"},
}
