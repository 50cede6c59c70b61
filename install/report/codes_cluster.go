// SPDX-License-Identifier: Apache-2.0

package report

// Codes of findings about a cluster, and about nodes as a cluster shows them.
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
	PodsUnnamed    Code = "pods-unnamed"
)

// clusterCodes are the meanings of these codes.
var clusterCodes = []Meaning{
	{Checked, "The check found nothing wrong.", "The subject is in order.", "none"},
	{
		KubernetesOld, "The chart does not support this version of Kubernetes.",
		"The API server is older than 1.25.", "upgrade the cluster",
	},
	{
		PoliciesMissing, "No policies bind the agents' rights to their own nodes.",
		"The API server is older than 1.30.", "upgrade the cluster, if you need those policies",
	},
	{
		PlatformsDiffer, "The nodes are of several platforms.",
		"The cluster mixes distributions.", "set the platform of most nodes, and a pool for each other one",
	},
	{
		NodesLeftOut, "No agent can run on some nodes.",
		"They are Windows, Fargate or virtual nodes.", "none, as long as no pod of the mesh runs there",
	},
	{
		KernelOld, "The kernel is too old for backend nftables and the guard.",
		"It is older than Linux 5.2.", "use backend iptables or auto, or upgrade the kernel",
	},
	{
		KernelUnknown, "The kernel's version is not known.",
		"The node has not reported it.", "run capture-cni-node preflight on such a node",
	},
	{
		InjectorUnreadable, "The values of istiod's injector can't be read.",
		"Its ConfigMap is damaged.", "check pilot.cni.enabled by hand",
	},
	{
		IstioInit, "istiod injects istio-init, so its pods are exempt.",
		"pilot.cni.enabled is false.", "set pilot.cni.enabled=true once capture-cni is installed",
	},
	{
		NoInjector, "No injector of a mesh was found.",
		"istiod is not installed, or its ConfigMap is not readable.", "install istiod with pilot.cni.enabled=true",
	},
	{
		ProvidersDiffer, "Revisions of istiod inject for different providers.",
		"pilot.cni.provider differs between them.", "set pilot.cni.provider alike in all revisions",
	},
	{
		ProviderDefault, "Provider default on OpenShift needs the auxiliary chain of Multus.",
		"pilot.cni.provider is default.", "follow deploy/guides/openshift.md, or set pilot.cni.provider=multus",
	},
	{
		PodSecurity, "Pod Security may refuse the agents' pods.",
		"The namespace's label does not enforce privileged.", "label the namespace with pod-security.kubernetes.io/enforce=privileged",
	},
	{
		InstalledElsewhere, "capture-cni is installed in another namespace.",
		"A cluster has one installation.", "run this again with --agent-namespace",
	},
	{
		Upgrade, "capture-cni is installed already.",
		"An earlier release or configuration is in the cluster.", "follow deploy/guides/upgrade.md",
	},
	{
		ImagePinned, "The agents' image is pinned to another release.",
		"image.tag or image.digest is set.", "set image.tag and image.digest to an image of the chart's release",
	},
	{
		PermissionMissing, "A part of the cluster could not be read.",
		"You lack a permission, or the API server failed.", "ask for the permission, or check this by hand",
	},
	{NodeNotReady, "The Node is not ready.", "Its kubelet or its network fails.", "run kubectl describe node"},
	{
		AgentMissing, "The node has no agent.",
		"Selector, affinity or tolerations exclude it, or its pod can't be made.",
		"compare the chart's nodeSelector, affinity and tolerations with the node",
	},
	{
		NodeUnselected, "No DaemonSet selects the node any more.",
		"A selector or a label changed.", "select it again, or by a pool with state absent",
	},
	{AgentEnding, "The node's agent ends.", "Its pod was deleted, or its DaemonSet no longer selects the node.", "none; wait for it"},
	{AgentStarting, "The node's agent starts.", "Its containers are created, or it has not reported yet.", "none; wait for it"},
	{
		AgentFailing, "The node's agent does not start, or is not ready.",
		"A container of the agent fails, or its pod is not scheduled.", "read the log of the container, or describe the pod",
	},
	{
		AgentSilent, "The node's agent has written no Lease.",
		"lease.enabled is false, the agent is old, or lacks a permission.", "if lease.enabled is true, read the agent's log",
	},
	{
		AgentStale, "The node's agent stopped reporting.",
		"The node is down, or the API server refuses the agent.", "if the node is up, read the agent's log",
	},
	{
		LeaseWrong, "The node's Lease has contents that no agent writes.",
		"Another version, another program or an attacker wrote it.", "read the agent's log; use the kubectl plugin of its version",
	},
	{
		GuardSilent, "The guard has not reported the states of pods.",
		"It has just started, or it fails.", "if it stays, read the log of the guard",
	},
	{
		AgentOutdated, "The agent is of an older specification than its DaemonSet.",
		"An upgrade is not finished, or updateStrategy is OnDelete.", "with OnDelete, delete the agent's pod",
	},
	{
		NotInstalled, "No DaemonSet of capture-cni is in the namespace.",
		"It is not installed there.", "install capture-cni, or name its namespace by --agent-namespace",
	},
	{
		NoNodes, "No node is selected.",
		"The chart's selectors fit no node.", "compare nodeSelector, affinity and tolerations with the nodes",
	},
	{LeasesLeft, "Leases are of Nodes that no longer exist.", "The nodes were deleted.", "delete these Leases"},
	{
		MeshOutside, "Pods of the mesh run on nodes without capture-cni.",
		"The operator removed it there.", "keep pods of the mesh off these nodes",
	},
	{PodsUnnamed, "More pods are not captured than the Lease names.", "A Lease names 100 pods at most.", "correct the named pods first"},
}
