// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// podSecurity is the label by which a namespace enforces a Pod Security level.
const podSecurity = "pod-security.kubernetes.io/enforce"

func (r *Report) checkCilium(c *Cluster) {
	if c.Cilium == nil {
		return
	}
	settings, good := c.Cilium.Data, true
	exclusive, sockets := "set cni.exclusive=false in Cilium's values", "set socketLB.hostNamespaceOnly=true in Cilium's values"
	if c.ciliumIsTheClouds() {
		exclusive = "the cloud sets it: use nodes with such a runtime, selected by nodeSelector"
		sockets = "none: the cloud sets it"
	}
	if settings["cni-exclusive"] == "true" && !allLoadDropIns(c) {
		good = false
		r.add(Problem, "cilium", exclusive,
			"with cni.exclusive it removes entries of other plugins from the list, and pods start uncaptured. "+
				"Only runtimes that load drop-ins are safe (containerd 2.1, CRI-O 1.33)")
	}
	balances := settings["bpf-lb-sock"] == "true" || slices.Contains([]string{"true", "strict"}, settings["kube-proxy-replacement"])
	if balances && settings["bpf-lb-sock-hostns-only"] != "true" {
		good = false
		r.add(Note, "cilium", sockets, "it balances connections at the sockets of pods: %s", report.SocketBalancingEffect)
	}
	if good {
		r.add(OK, "cilium", "", "its settings affect neither the plugin nor the addresses of Services")
	}
}

// ciliumIsTheClouds reports whether GKE (Dataplane V2) or AKS runs Cilium, and sets its
// values.
func (c *Cluster) ciliumIsTheClouds() bool {
	return slices.ContainsFunc(c.running(cilium), func(set appsv1.DaemonSet) bool {
		return slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(container corev1.Container) bool {
			return strings.HasPrefix(container.Image, "gke.gcr.io/") || strings.HasPrefix(container.Image, "mcr.microsoft.com/")
		})
	})
}

func allLoadDropIns(c *Cluster) bool {
	for _, node := range c.linuxNodes() {
		if !report.ParseRuntime(node.Status.NodeInfo.ContainerRuntimeVersion).LoadsDropIns() {
			return false
		}
	}
	return len(c.linuxNodes()) > 0
}

func (r *Report) checkCalico(c *Cluster) {
	switch {
	case c.Felix == nil:
	case c.Felix.Spec.BPFEnabled && c.Felix.Spec.BPFConnectTimeLoadBalancing != "Disabled":
		r.add(Note, "calico", "set bpfConnectTimeLoadBalancing: Disabled in FelixConfiguration default",
			"its eBPF data plane balances connections at the sockets of pods: %s", report.SocketBalancingEffect)
	default:
		r.add(OK, "calico", "", "its settings do not affect the addresses of Services")
	}
}

// checkNamespace looks at the Pod Security of the namespace: the agent mounts directories
// of the node.
func (r *Report) checkNamespace(c *Cluster) {
	label := report.Command("kubectl", "label", "namespace", r.namespace, "--overwrite", podSecurity+"=privileged")
	next, commands := label, []string{label}
	if r.namespace != fleet.DefaultNamespace { // whose other pods would be admitted, too
		next, commands = "install into namespace "+fleet.DefaultNamespace, nil
		next += "; or, if only capture-cni has pods there, set its label " + podSecurity + " to privileged"
	}
	switch {
	case c.Namespace == nil && len(c.Unknown) > 0: // it may exist
	case c.Namespace == nil:
		r.add(OK, "namespace", "", "%s does not exist yet", r.namespace)
		r.Commands = append(r.Commands, report.Command("kubectl", "create", "namespace", r.namespace), label)
	case c.Namespace.Labels[podSecurity] == "privileged":
		r.add(OK, "namespace", "", "%s admits the agent's pods", r.namespace)
	case c.Namespace.Labels[podSecurity] == "":
		r.add(Note, "namespace", next, "%s has no label for Pod Security: the cluster's default may refuse the agent's pods", r.namespace)
		r.Commands = append(r.Commands, commands...)
	default:
		r.add(Problem, "namespace", next,
			"%s enforces %q for Pod Security: the agent's pods mount directories of the node, which needs privileged",
			r.namespace, c.Namespace.Labels[podSecurity])
	}
}
