// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// Names of the networks' and meshes' programs that this package looks for in DaemonSets.
const (
	ztunnel    = "ztunnel"
	linkerdCNI = "linkerd-cni"
	cilium     = "cilium"
	calico     = "calico"
)

// programs lists networks' and meshes' programs by their images' names, because releases, clouds and
// mirrors change the names of DaemonSets and registries more often than those of images.
var programs = []struct {
	program string
	image   string // pattern of path.Match for the last two parts of the repository
	word    string // in the command, if the image contains other programs, too
}{
	{report.IstioCNI, "*/install-cni", ""},
	{report.IstioCNI, "*/istio-cni*", ""},
	{ztunnel, "*/ztunnel*", ""},
	{linkerdCNI, "linkerd/cni-plugin", ""},
	{linkerdCNI, "buoyantio/cni-plugin", ""},
	{"kuma-cni", "*/kuma-cni", ""},
	{"consul-cni", "*/consul-k8s-control-plane*", "install-cni"},
	{cilium, "*/cilium", ""},
	{cilium, "*/mirrored-cilium-cilium", ""},
	{calico, "calico/node", ""},
	{calico, "*/mirrored-calico-node", ""},
}

// programOf returns the program of this list that a DaemonSet runs, or "". It ignores DaemonSets that
// mount no directory of the node, because each of these programs needs one.
func programOf(set appsv1.DaemonSet) string {
	pod := set.Spec.Template.Spec
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) {
		return ""
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		command := strings.Join(slices.Concat(container.Command, container.Args), " ")
		for _, p := range programs {
			if matches, _ := path.Match(p.image, repository(container.Image)); matches && strings.Contains(command, p.word) {
				return p.program
			}
		}
	}
	return ""
}

// repository returns the last two parts of an image's repository.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	parts := strings.Split("library/"+image, "/")
	last := len(parts) - 1
	parts[last], _, _ = strings.Cut(parts[last], ":")
	return parts[last-1] + "/" + parts[last]
}

// running returns the DaemonSets that run a program and have pods. The cluster may refuse the pods of a
// DaemonSet, which then runs nothing.
func (c *Cluster) running(program string) []appsv1.DaemonSet {
	return slices.DeleteFunc(slices.Clone(c.DaemonSets), func(set appsv1.DaemonSet) bool {
		return set.Status.CurrentNumberScheduled == 0 || programOf(set) != program
	})
}
