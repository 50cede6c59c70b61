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
	SandboxFailed    Code = "sandbox-failed"
	Starting         Code = "starting"
)

// podCodes are the meanings of these codes.
var podCodes = []Meaning{
	{Captured, "The pod has the desired rules, unchanged.", "The plugin or the guard captured it.", "none"},
	{
		Uncaptured, "The pod has no capture rules.",
		"It started before the entry, or a process removed its rules.",
		"with guard.policy=inPlace the guard repairs it; else restart the pod",
	},
	{
		Drifted, "The pod's capture rules were changed since its ADD.",
		"A process with NET_ADMIN changed them.",
		"find that process; with guard.policy=inPlace the guard repairs it; else restart the pod",
	},
	{
		Outdated, "The pod has rules of another version or configuration.",
		"The plugin or its configuration changed after the pod started.", "restart the pod when it suits you",
	},
	{
		Changed, "The pod is captured as its annotations were at its creation.",
		"The annotations were edited since, or the pod got an IPv6 address late.", "restart the pod when it suits you",
	},
	{
		Foreign, "Another plugin's rules capture the pod.",
		"It started when another plugin captured pods on the node.", "restart the pod once the other plugin is gone",
	},
	{
		Obstructed, "Another table could keep packets from the capture rules.",
		"A container with NET_ADMIN added the table.", "remove NET_ADMIN from the container that adds the table",
	},
	{
		InjectedLater, "The pod looks injected, but its sandbox was made without capture.",
		"A user edited the annotations of a running pod.", "delete the pod; the API server's audit log shows who edited it",
	},
	{
		Unknown, "The pod's state could not be found out.",
		"The runtime, the agent or the kernel did not answer.",
		"run this again in a minute; if the state stays, run kubectl capture-cni status",
	},
	{Exempt, "The pod is in the mesh and is not captured.", "The pod or the operator chose that.", "see the code of the cause"},
	{
		NotExamined, "The guard of the pod's node does not know the pod.",
		"The guard fails, or the runtime does not list the pod.", "read the log of the node's guard",
	},
	{
		NotStarted, "The pod's network has not been set up for a minute.",
		"Its ADD fails, or a plugin before ours fails.", "run kubectl capture-cni explain for the pod",
	},
	{
		NotReported, "No guard reports whether the pod is captured.",
		"guard.enabled is false, or the guard has no CRI socket or nftables.",
		"set guard.enabled=true, with backend nftables and a CRI socket",
	},
	{Gone, "No such pod exists.", "It has ended, or was never created.", "list the namespace's pods"},
	{NotInMesh, "The pod is not in the mesh, so it is not captured.", "See the code of the cause.", "none"},
	{
		NotScheduled, "The pod has no node.",
		"The scheduler found none, often because of taints.",
		"run kubectl describe pod; for taints of new nodes see deploy/guides/taint.md",
	},
	{
		InitContainer, "The pod's own init container captures it.",
		"The injector still adds that init container.", "set pilot.cni.enabled=true, or Linkerd's cniEnabled=true, and restart the pod",
	},
	{
		NoProxy, "The pod is marked as injected and has no proxy.",
		"An injector or a template left the proxy out.", "none, if the pod has no sidecar on purpose",
	},
	{
		ProxyDisabled, "The proxy's container has DISABLE_ENVOY.",
		"The pod's own settings disable Envoy.", "none, if the pod has no sidecar on purpose",
	},
	{
		OtherProxyType, "The container istio-proxy is not a sidecar.",
		"It is a gateway, such as an ingress gateway.", "none, if the pod has no sidecar on purpose",
	},
	{
		InjectFalse, "The pod has sidecar.istio.io/inject=false.",
		"Its author excluded it from the mesh.", "none, if it is on purpose; else correct its label or annotation",
	},
	{
		InterceptionNone, "The pod has interceptionMode NONE.",
		"Its author chose that its proxy captures nothing.", "none, if it is on purpose; else correct its label or annotation",
	},
	{
		NamespaceExcluded, "The pod's namespace is in excludeNamespaces.",
		"The operator excluded the namespace.", "none, if its namespace is in excludeNamespaces on purpose",
	},
	{
		NotInjected, "No injector changed the pod at its creation.",
		"Its namespace has no label for injection.",
		"label its namespace for injection (istio-injection=enabled or istio.io/rev), and restart the pod",
	},
	{
		HostNetwork, "The pod has the network of its node, which is never captured.",
		"Its specification has hostNetwork.", "none; a pod in the mesh needs a network of its own",
	},
	{
		MeshOff, "The pod's mesh is not among netconf.meshes.",
		"The chart's values do not name that mesh.", "name it in netconf.meshes, if its pods should be captured",
	},
	{
		AmbientPod, "The pod belongs to Istio's ambient mode.",
		"It has istio.io/dataplane-mode=ambient, so ztunnel captures its traffic.", "none",
	},
	{
		AddFailed, "The pod's ADD fails.",
		"The plugin reported the error that the message contains.", "correct what the cause names; the runtime retries",
	},
	{
		AddAnnotations, "The plugin refuses the pod's annotations.",
		"An annotation has a value that the plugin can't read.", "correct the annotations that the cause names, and restart the pod",
	},
	{AddRefused, "The plugin refuses the pod.", "The pod would run without capture.", "remove what the cause names"},
	{
		AddLookup, "The plugin could not read the pod.",
		"Neither the agent nor the API server returned it.", "look at kubectl capture-cni status; the runtime retries",
	},
	{
		AddConfiguration, "The plugin's own configuration has faults.",
		"netconf in the chart's values has a wrong key or value.", "correct netconf in the chart's values; the runtime retries",
	},
	{
		AddInput, "The plugin could not read the runtime's request.",
		"The runtime's configuration or a plugin before ours is broken.", "correct netconf in the chart's values; the runtime retries",
	},
	{
		AddKernel, "The kernel refused the capture rules.",
		"A kernel module is missing.", "load the module that the cause names, or choose another backend",
	},
	{AddGone, "The pod's network namespace vanished during its ADD.", "The runtime deleted the sandbox.", "none; the runtime retries"},
	{
		SandboxFailed, "The pod's sandbox fails, and capture-cni is not the cause.",
		"The runtime or another plugin reports an error.", "correct what the cause names",
	},
	{Starting, "The pod's network is being set up.", "Its ADD runs, or has not begun.", "run this again in a minute"},
}
