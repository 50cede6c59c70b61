// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"slices"

	"github.com/capture-cni/capture-cni/install/terms"
)

// podSecurity is the label by which a namespace enforces a Pod Security level.
const podSecurity = "pod-security.kubernetes.io/enforce"

func (r *Report) checkCilium(c *Cluster) {
	if c.Cilium == nil {
		return
	}
	settings, good := c.Cilium.Data, true
	if settings["cni-exclusive"] == "true" && !allLoadDropIns(c) {
		good = false
		r.add(Problem, "cilium", "set cni.exclusive=false in Cilium's values",
			"with cni.exclusive it removes entries of other plugins from the list, and pods start uncaptured. Only runtimes that load drop-ins are safe (containerd 2.1, CRI-O 1.33)")
	}
	balances := settings["bpf-lb-sock"] == "true" || slices.Contains([]string{"true", "strict"}, settings["kube-proxy-replacement"])
	if balances && settings["bpf-lb-sock-hostns-only"] != "true" {
		good = false
		r.add(Note, "cilium", "set socketLB.hostNamespaceOnly=true in Cilium's values", "it balances connections at the sockets of pods: %s", terms.SocketBalancingEffect)
	}
	if good {
		r.add(OK, "cilium", "", "its settings affect neither the plugin nor the addresses of Services")
	}
}

func allLoadDropIns(c *Cluster) bool {
	for _, node := range c.Nodes {
		if !terms.ParseRuntime(node.Status.NodeInfo.ContainerRuntimeVersion).LoadsDropIns() {
			return false
		}
	}
	return len(c.Nodes) > 0
}

func (r *Report) checkCalico(c *Cluster) {
	switch {
	case c.Felix == nil:
	case c.Felix.Spec.BPFEnabled && c.Felix.Spec.BPFConnectTimeLoadBalancing != "Disabled":
		r.add(Note, "calico", "set bpfConnectTimeLoadBalancing: Disabled in FelixConfiguration default", "its eBPF data plane balances connections at the sockets of pods: %s", terms.SocketBalancingEffect)
	default:
		r.add(OK, "calico", "", "its settings do not affect the addresses of Services")
	}
}

// checkNamespace looks at the Pod Security of the namespace: the agent mounts directories
// of the node.
func (r *Report) checkNamespace(c *Cluster) {
	label := "kubectl label namespace " + r.namespace + " --overwrite " + podSecurity + "=privileged"
	switch {
	case c.Namespace == nil:
		r.add(OK, "namespace", "", "%s does not exist yet", r.namespace)
		r.Commands = append(r.Commands, "kubectl create namespace "+r.namespace, label)
	case c.Namespace.Labels[podSecurity] == "privileged":
		r.add(OK, "namespace", "", "%s admits the agent's pods", r.namespace)
	case c.Namespace.Labels[podSecurity] == "":
		r.add(Note, "namespace", "", "%s has no label for Pod Security: the cluster's default may refuse the agent's pods", r.namespace)
		r.Commands = append(r.Commands, label)
	default:
		r.add(Problem, "namespace", label, "%s enforces %q for Pod Security: the agent's pods mount directories of the node, which needs privileged", r.namespace, c.Namespace.Labels[podSecurity])
		r.Commands = append(r.Commands, label)
	}
}
