// SPDX-License-Identifier: Apache-2.0

package report

// Codes of findings about a cluster, about nodes as a cluster shows them, and of the test of capture.
const (
	Checked            Code = "checked"
	KubernetesOld      Code = "kubernetes-old"
	PoliciesMissing    Code = "policies-missing"
	PlatformsDiffer    Code = "platforms-differ"
	NodesLeftOut       Code = "nodes-left-out"
	KernelOld          Code = "kernel-old"
	KernelUnknown      Code = "kernel-unknown"
	InjectorUnreadable Code = "injector-unreadable"
	IstioInit          Code = "istio-init"
	NoInjector         Code = "no-injector"
	ProvidersDiffer    Code = "providers-differ"
	ProviderDefault    Code = "provider-default"
	PodSecurity        Code = "pod-security"
	InstalledElsewhere Code = "installed-elsewhere"
	Upgrade            Code = "upgrade"
	ImagePinned        Code = "image-pinned"
	PermissionMissing  Code = "permission-missing"

	NodeNotReady   Code = "node-not-ready"
	AgentMissing   Code = "agent-missing"
	NodeUnselected Code = "node-unselected"
	AgentEnding    Code = "agent-ending"
	AgentStarting  Code = "agent-starting"
	AgentFailing   Code = "agent-failing"
	AgentSilent    Code = "agent-silent"
	AgentStale     Code = "agent-stale"
	LeaseWrong     Code = "lease-wrong"
	GuardSilent    Code = "guard-silent"
	AgentOutdated  Code = "agent-outdated"
	NotInstalled   Code = "not-installed"
	NoNodes        Code = "no-nodes"
	LeasesLeft     Code = "leases-left"
	MeshOutside    Code = "mesh-outside"
	FenceUnknown   Code = "fence-unknown"
	PodsUnnamed    Code = "pods-unnamed"

	TestMisrouted  Code = "test-misrouted"
	TestUnanswered Code = "test-unanswered"
	TestPodFailed  Code = "test-pod-failed"
	TestSkipped    Code = "test-skipped"
)

// clusterCodes are the meanings of these codes.
var clusterCodes = []Meaning{
	{Checked, "The check found no problem.", "The subject is in order.", "none"},
	{KubernetesOld, "The chart does not support the cluster's Kubernetes.", "The API server is older than 1.25.", "upgrade the cluster"},
	{
		PoliciesMissing, "No policies limit agents to their own nodes.", "The API server is older than 1.30.",
		"upgrade the cluster, if you need those policies",
	},
	{
		PlatformsDiffer, "The nodes are of several platforms.", "The cluster mixes distributions.",
		"set the platform of most nodes, and a pool for each other",
	},
	{NodesLeftOut, "No agent can run on some nodes.", "The nodes are Windows, Fargate or virtual ones.", "none, if no meshed pod runs there"},
	{
		KernelOld, "The kernel is too old for nftables and the guard.", "The kernel is older than Linux 5.2.",
		"use backend iptables or auto, or upgrade the kernel",
	},
	{
		KernelUnknown, "The kernel's version is not known.", "The node has not reported the version.",
		"run capture-cni-node preflight on the node",
	},
	{InjectorUnreadable, "The injector's values can't be read.", "The injector's ConfigMap is damaged.", "check pilot.cni.enabled by hand"},
	{
		IstioInit, "istiod injects istio-init, so its pods are exempt.", "pilot.cni.enabled is false.",
		"install capture-cni, then set pilot.cni.enabled=true",
	},
	{
		NoInjector, "The check found no mesh's injector.", "No mesh is installed, or its ConfigMap is unreadable.",
		"install a mesh, such as istiod with pilot.cni.enabled=true",
	},
	{
		ProvidersDiffer, "Revisions of istiod inject for different providers.", "The revisions have different values of pilot.cni.provider.",
		"set pilot.cni.provider alike in all revisions",
	},
	{
		ProviderDefault, "Provider default on OpenShift needs Multus's auxiliary chain.", "pilot.cni.provider is default.",
		"follow deploy/guides/openshift.md, or set pilot.cni.provider=multus",
	},
	{
		PodSecurity, "Pod Security may refuse the agents' pods.", "The namespace's label does not enforce privileged.",
		"label the namespace with pod-security.kubernetes.io/enforce=privileged",
	},
	{
		InstalledElsewhere, "capture-cni is installed in another namespace.", "A cluster has only one installation.",
		"run the command again with --agent-namespace",
	},
	{Upgrade, "capture-cni is already installed.", "The cluster has an earlier release or configuration.", "follow deploy/guides/upgrade.md"},
	{
		ImagePinned, "The agents' image is pinned to another release.", "image.tag or image.digest is set.",
		"set image.tag and image.digest to the chart's release",
	},
	{
		PermissionMissing, "A part of the cluster could not be read.", "You lack a permission, or the API server failed.",
		"ask for the permission, or check by hand",
	},
	{NodeNotReady, "The Node is not ready.", "The node's kubelet or network fails.", "run kubectl describe node"},
	{
		AgentMissing, "The node has no agent.", "The chart excludes the node, or the pod's creation fails.",
		"compare the chart's nodeSelector, affinity and tolerations with the node",
	},
	{
		NodeUnselected, "No DaemonSet selects the node any more.", "A selector or a label changed.",
		"select the node again, or by a pool with state absent",
	},
	{AgentEnding, "The node's agent is ending.", "The agent's pod was deleted, or no DaemonSet selects the node.", "none; wait"},
	{AgentStarting, "The node's agent is starting.", "The agent's containers start, or the first report is due.", "none; wait"},
	{
		AgentFailing, "The node's agent does not start, or is not ready.", "A container fails, or the pod is not scheduled.",
		"read the container's log, or describe the pod",
	},
	{
		AgentSilent, "The node's agent has written no Lease.", "lease.enabled is false, or the agent is old or unauthorized.",
		"if lease.enabled is true, read the agent's log",
	},
	{
		AgentStale, "The node's agent stopped reporting.", "The node is down, or the API server refuses the agent.",
		"if the node is up, read the agent's log",
	},
	{
		LeaseWrong, "The node's Lease has contents that no agent writes.", "Another version, another program or an attacker wrote the Lease.",
		"read the agent's log; use a kubectl plugin of its version",
	},
	{GuardSilent, "The guard has not reported pods.", "The guard is starting, or fails.", "wait a minute, then read the guard's log"},
	{
		AgentOutdated, "The agent is older than its DaemonSet's specification.", "An upgrade is not finished, or updateStrategy is OnDelete.",
		"with OnDelete, delete the agent's pod",
	},
	{
		NotInstalled, "The namespace has no DaemonSet of capture-cni.", "capture-cni is not installed, or is in another namespace.",
		"install capture-cni, or name its namespace by --agent-namespace",
	},
	{NoNodes, "No node is selected.", "The chart's selectors fit no node.", "compare nodeSelector, affinity and tolerations with the nodes"},
	{LeasesLeft, "Leases are of Nodes that no longer exist.", "The Nodes were deleted.", "delete these Leases"},
	{
		MeshOutside, "Meshed pods run on nodes without capture-cni.", "The operator removed capture-cni from these nodes.",
		"keep meshed pods off these nodes",
	},
	{
		FenceUnknown, "Pods ask for a fence, and nodes have an agent that knows none.", "Some nodes run capture-cni 0.3 or earlier.",
		"upgrade capture-cni on these nodes, and restart the fenced pods there",
	},
	{PodsUnnamed, "More pods are not captured than the Lease names.", "A Lease names at most 100 pods.", "correct the named pods first"},
	{
		TestMisrouted, "A connection missed a proxy, or met an unexpected one.", "A pod's capture rules are missing or wrong.",
		"look at the pod's node in kubectl capture-cni status -o wide",
	},
	{
		TestUnanswered, "A connection was not answered.", "A NetworkPolicy or a firewall drops packets.",
		"look for a NetworkPolicy or a firewall between the nodes",
	},
	{TestPodFailed, "A pod of the test failed.", "The image is missing, or of another version.", "set --image, or correct the cause"},
	{TestSkipped, "A check was not tried.", "The cluster or configuration does not allow the check.", "none, if you do not need the check"},
}
