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
	settings, cloud, before := c.Cilium.Data, c.ciliumIsTheClouds(), len(r.Results)
	if settings["cni-exclusive"] == "true" {
		chooses := choosesDropIn(c)
		for _, found := range report.CheckExclusive(report.Auto, "cilium-config sets cni-exclusive", chooses, !chooses) {
			if cloud {
				found.Next = "the cloud sets it: use nodes with containerd 2.1 or newer, selected by nodeSelector"
			}
			r.join("cilium", found)
		}
	}
	balances := settings["bpf-lb-sock"] == "true" || slices.Contains([]string{"true", "strict"}, settings["kube-proxy-replacement"])
	if balances && settings["bpf-lb-sock-hostns-only"] != "true" {
		found := report.CheckSockets(report.Cilium, "cilium-config", true)
		if cloud {
			found.Next = "none: the cloud sets it"
		}
		r.join("cilium", found)
	}
	if len(r.Results) == before {
		r.ok("cilium", "its settings affect neither the plugin nor the addresses of Services")
	}
}

// ciliumIsTheClouds reports whether the cloud installs Cilium and sets its values, as GKE (Dataplane
// V2) and AKS do.
func (c *Cluster) ciliumIsTheClouds() bool {
	return slices.ContainsFunc(c.running(cilium), func(set appsv1.DaemonSet) bool {
		return slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(container corev1.Container) bool {
			return strings.HasPrefix(container.Image, "gke.gcr.io/") || strings.HasPrefix(container.Image, "mcr.microsoft.com/")
		})
	})
}

// choosesDropIn reports whether mode auto is known to choose dropin on all nodes.
func choosesDropIn(c *Cluster) bool {
	return len(c.linuxNodes()) > 0 && !slices.ContainsFunc(c.linuxNodes(), func(node corev1.Node) bool {
		runtime := report.ParseRuntime(node.Status.NodeInfo.ContainerRuntimeVersion)
		return runtime.HidesDropIns() || !runtime.LoadsDropIns()
	})
}

func (r *Report) checkCalico(c *Cluster) {
	switch {
	case c.Felix == nil:
	case c.Felix.Spec.BPFEnabled && c.Felix.Spec.BPFConnectTimeLoadBalancing != "Disabled":
		r.join("calico", report.CheckSockets(report.Calico, "FelixConfiguration default", true))
	default:
		r.ok("calico", "its settings do not affect the addresses of Services")
	}
}

// checkNamespace adds a finding about the namespace's Pod Security level, and the commands that create
// and label the namespace. The level must admit the agents, which mount directories of the node.
func (r *Report) checkNamespace(c *Cluster) {
	label := report.Command("kubectl", "label", "namespace", r.namespace, "--overwrite", podSecurity+"=privileged")
	next, commands := label, []string{label}
	if r.namespace != fleet.DefaultNamespace { // the label would admit other pods of the namespace, too
		next, commands = "install into namespace "+fleet.DefaultNamespace, nil
		next += "; or, if only capture-cni has pods there, set its label " + podSecurity + " to privileged"
	}
	switch {
	case c.Namespace == nil && len(c.Unknown) > 0: // the namespace may exist
	case c.Namespace == nil:
		r.ok("namespace", "%s does not exist yet", r.namespace)
		r.Commands = append(r.Commands, report.Command("kubectl", "create", "namespace", r.namespace), label)
	case c.Namespace.Labels[podSecurity] == "privileged":
		r.ok("namespace", "%s admits the agent's pods", r.namespace)
	case c.Namespace.Labels[podSecurity] == "":
		r.add(report.Note, report.PodSecurity, "namespace", next,
			"%s has no label for Pod Security: the cluster's default may refuse the agent's pods", r.namespace)
		r.Commands = append(r.Commands, commands...)
	default:
		r.add(report.Problem, report.PodSecurity, "namespace", next,
			"%s enforces %q for Pod Security: the agent's pods mount directories of the node, which needs privileged",
			r.namespace, c.Namespace.Labels[podSecurity])
	}
}
