// SPDX-License-Identifier: Apache-2.0

package report

// Codes of findings about a cluster, about nodes according to the API server, and about results of
// kubectl capture-cni test.
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

// clusterCodes contains the meaning of each code in this file.
var clusterCodes = []Meaning{
	{Checked, "The check found no problem.", "", "none"},
	{KubernetesOld, "The chart needs Kubernetes 1.25 or newer.", "", "upgrade the cluster"},
	{
		PoliciesMissing, "Policies that limit agents to their own nodes need Kubernetes 1.30.", "",
		"upgrade the cluster, if you need those policies",
	},
	{PlatformsDiffer, "Nodes are of several platforms.", "", "set the platform of most nodes, and pools for the others"},
	{NodesLeftOut, "No agent can run on Windows, Fargate or virtual nodes.", "", "none, if no meshed pod runs there"},
	{KernelOld, "nftables and the guard need Linux 5.2 or newer.", "", "use backend iptables or auto, or upgrade the kernel"},
	{KernelUnknown, "The node has not reported the kernel's version.", "", "run capture-cni-node preflight on the node"},
	{InjectorUnreadable, "The injector's ConfigMap is damaged.", "", "check pilot.cni.enabled by hand"},
	{IstioInit, "istiod injects istio-init, so injected pods are exempt.", "", "install capture-cni, then set pilot.cni.enabled=true"},
	{
		NoInjector, "The check found no injector.", "istiod is not installed, or its configuration is unreadable.",
		"install a mesh, such as istiod with pilot.cni.enabled=true",
	},
	{ProvidersDiffer, "Revisions of istiod inject for different providers.", "", "set pilot.cni.provider alike in all revisions"},
	{
		ProviderDefault, "On OpenShift, pilot.cni.provider=default needs Multus's auxiliary chain.", "",
		"follow deploy/guides/openshift.md, or set pilot.cni.provider=multus",
	},
	{PodSecurity, "Pod Security may refuse agents.", "", "label the namespace with pod-security.kubernetes.io/enforce=privileged"},
	{InstalledElsewhere, "capture-cni is installed in another namespace.", "", "run the command again with --agent-namespace"},
	{Upgrade, "capture-cni is already installed.", "", "follow deploy/guides/upgrade.md"},
	{ImagePinned, "image.tag or image.digest pins the image.", "", "set both to an image of the chart's release"},
	{PermissionMissing, "Part of the cluster could not be read.", "", "ask for the permission, or check by hand"},
	{NodeNotReady, "The Node is not ready.", "", "run kubectl describe node"},
	{
		AgentMissing, "The node has no agent.", "The chart excludes the node, or pod creation fails.",
		"compare nodeSelector, affinity and tolerations with the node",
	},
	{NodeUnselected, "No DaemonSet selects the node any more.", "", "select the node, or use a pool with state absent"},
	{AgentEnding, "The node's agent is ending.", "", "none; wait"},
	{AgentStarting, "The node's agent is starting.", "", "none; wait"},
	{AgentFailing, "The node's agent fails.", "", "read the container's log, or describe the pod"},
	{
		AgentSilent, "The node's agent has written no Lease.", "lease.enabled is false, or the agent is old or unauthorized.",
		"if lease.enabled is true, read the agent's log",
	},
	{AgentStale, "The node's agent stopped reporting.", "", "if the node is up, read the agent's log"},
	{
		LeaseWrong, "The node's Lease has unexpected contents.", "Another version, another program or an attacker wrote the Lease.",
		"read the agent's log; use a kubectl plugin of its version",
	},
	{GuardSilent, "The guard has not reported pods.", "", "wait a minute, then read the guard's log"},
	{
		AgentOutdated, "The agent is older than its DaemonSet.", "An upgrade is unfinished, or updateStrategy is OnDelete.",
		"with OnDelete, delete the agent's pod",
	},
	{NotInstalled, "The namespace has no DaemonSet of capture-cni.", "", "install capture-cni, or set --agent-namespace"},
	{NoNodes, "No node is selected.", "", "compare nodeSelector, affinity and tolerations with the nodes"},
	{LeasesLeft, "Leases of deleted Nodes remain.", "", "delete the Leases"},
	{MeshOutside, "Meshed pods run on nodes without capture-cni.", "", "keep meshed pods off these nodes"},
	{
		FenceUnknown, "Pods ask for a fence, but some nodes run capture-cni 0.3 or earlier.", "",
		"upgrade capture-cni there, and restart fenced pods",
	},
	{PodsUnnamed, "A Lease names at most 100 pods that need attention.", "", "correct the named pods first"},
	{
		TestMisrouted, "A connection took a wrong path.", "A pod's rules are missing or wrong.",
		"run kubectl capture-cni status -o wide",
	},
	{TestUnanswered, "A connection was not answered.", "", "correct the NetworkPolicy or firewall"},
	{TestPodFailed, "A pod of the test failed.", "The image is missing, or of another version.", "set --image, or correct the cause"},
	{TestSkipped, "A check was not tried.", "The cluster or configuration forbids the check.", "none, if not needed"},
}
