// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// isBefore reports whether a version is older than a release, or can't be parsed.
func isBefore(text, release string) bool {
	v, err := version.ParseGeneric(text)
	return err != nil || v.LessThan(version.MustParseGeneric(release))
}

func (r *Report) checkVersion(version string) {
	switch {
	case isBefore(version, "1.25"):
		r.add(report.Problem, report.KubernetesOld, "kubernetes", "upgrade the cluster", "version %s: the chart needs 1.25", version)
	case isBefore(version, "1.30"):
		r.add(report.Note, report.PoliciesMissing, "kubernetes", "",
			"version %s: the policies that bind the agents' rights to their own nodes need 1.30", version)
	default:
		r.ok("kubernetes", "version %s", version)
	}
}

// Parts of the kubelet's version, and labels of a node, that identify the chart's platform.
var (
	platformVersions = map[string]string{"+k0s": "k0s", "+k3s": "k3s", "+rke2": "rke2", "-gke.": "gke"}
	platformLabels   = map[string]string{
		"node.openshift.io/os_id": "openshift",
		"microk8s.io/cluster":     "microk8s",
		"minikube.k8s.io/name":    "minikube",
	}
)

// platformOf returns the chart's platform for a node, by default plain.
func platformOf(node corev1.Node) string {
	if strings.HasPrefix(node.Status.NodeInfo.OSImage, "K3s ") { // the node is a container of K3s' image
		return "k3d"
	}
	for part, platform := range platformVersions {
		if strings.Contains(node.Status.NodeInfo.KubeletVersion, part) {
			return platform
		}
	}
	for label, platform := range platformLabels {
		if _, has := node.Labels[label]; has {
			return platform
		}
	}
	return "plain"
}

// kindWithoutAgents returns Windows, Fargate or virtual for a node on which no DaemonSet can run an
// agent, and "" for any other node.
func kindWithoutAgents(node corev1.Node) string {
	system := cmp.Or(node.Status.NodeInfo.OperatingSystem, node.Labels[corev1.LabelOSStable], "linux")
	isVirtual := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "virtual-kubelet.io/provider" })
	switch {
	case system != "linux":
		return "Windows"
	case node.Labels["eks.amazonaws.com/compute-type"] == "fargate":
		return "Fargate"
	case isVirtual || node.Labels["type"] == "virtual-kubelet":
		return "virtual"
	}
	return ""
}

// linuxNodes returns the nodes that can have an agent.
func (c *Cluster) linuxNodes() []corev1.Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(node corev1.Node) bool { return kindWithoutAgents(node) != "" })
}

// checkLeftOut adds a note for each kind of node that can't have an agent.
func (r *Report) checkLeftOut(c *Cluster) {
	names := map[string][]string{}
	for _, node := range c.Nodes {
		if kind := kindWithoutAgents(node); kind != "" {
			names[kind] = append(names[kind], node.Name)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(names)) {
		r.add(report.Note, report.NodesLeftOut, "nodes", "none, as long as no pod of the mesh runs there",
			"left out, as no agent can run there (%s): %s", kind, fleet.Some(names[kind]))
	}
}

// checkNodes adds findings about the kernels and runtimes of the nodes, and chooses the platform
// and the backend.
func (r *Report) checkNodes(c *Cluster) {
	r.checkLeftOut(c)
	platforms, runtimes, found := map[string]bool{}, map[string]bool{}, map[report.Finding][]string{}
	var oldKernels, unknownKernels []string
	linux := c.linuxNodes()
	for _, node := range linux {
		info := node.Status.NodeInfo
		platforms[platformOf(node)], runtimes[info.ContainerRuntimeVersion] = true, true
		switch {
		case info.KernelVersion == "":
			unknownKernels = append(unknownKernels, node.Name)
		case isBefore(info.KernelVersion, "5.2"):
			oldKernels = append(oldKernels, node.Name)
		}
		for _, one := range report.CheckRuntime(report.ParseRuntime(info.ContainerRuntimeVersion), report.Auto) {
			found[one] = append(found[one], node.Name)
		}
	}
	switch names := slices.Sorted(maps.Keys(platforms)); len(names) {
	case 0:
	case 1:
		r.Values["platform"] = names[0]
		r.ok("platform", "%s", names[0])
	default:
		r.add(report.Problem, report.PlatformsDiffer, "platform",
			"set the platform of most nodes, and a pool for each of the others: deploy/guides/nodes.md",
			"nodes of several platforms: %s", strings.Join(names, ", "))
	}
	if len(oldKernels) > 0 {
		r.Values["netconf.backend"] = "iptables"
		if len(oldKernels) < len(linux) {
			r.Values["netconf.backend"] = "auto"
		}
		r.add(report.Note, report.KernelOld, "kernel", "",
			"older than 5.2 on %s: backend nftables needs 5.2; with iptables there is no guard", fleet.Some(oldKernels))
	}
	if len(unknownKernels) > 0 {
		r.add(report.Note, report.KernelUnknown, "kernel", "capture-cni-node preflight on such a node",
			"its version is not known on %s", fleet.Some(unknownKernels))
	}
	for _, one := range slices.SortedFunc(maps.Keys(found), func(a, b report.Finding) int { return -cmp.Compare(a.Code, b.Code) }) {
		nodes := fleet.Some(found[one])
		one.Reason += " (on " + nodes + ")"
		r.join("runtime", one)
	}
	if len(linux) > 0 && len(found)+len(oldKernels)+len(unknownKernels) == 0 {
		r.ok("nodes", "%d, with %s", len(linux), strings.Join(slices.Sorted(maps.Keys(runtimes)), ", "))
	}
}
