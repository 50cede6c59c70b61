// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// Installed describes an existing installation of capture-cni.
type Installed struct {
	Namespace string
	Release   string // of Helm; "" for a manifest
	Version   string
	Pinned    []string          // images that the chart did not choose, which may not work with another chart
	Values    map[string]string // current values of mode and netconf.backend, if known
}

// readInstalled reads an existing installation, in any namespace, into Installed.
func (c *Cluster) readInstalled(ctx context.Context, client *fleet.Client) {
	found, namespace := &Installed{Values: map[string]string{}}, c.findInstallation(ctx, client)
	for _, set := range c.DaemonSets {
		labels, pod := set.Labels, set.Spec.Template
		i := slices.IndexFunc(pod.Spec.Containers, func(container corev1.Container) bool { return container.Name == fleet.InstallerContainer })
		isAgents := labels["app.kubernetes.io/name"] == "capture-cni" && labels["app.kubernetes.io/component"] == "node"
		if i < 0 || set.Namespace != namespace || !isAgents {
			continue
		}
		version, installer := labels["app.kubernetes.io/version"], pod.Spec.Containers[i]
		if !strings.HasSuffix(installer.Image, ":"+version) {
			found.Pinned = append(found.Pinned, installer.Image)
		}
		if pod.Labels["capture-cni.io/pool"] == "" {
			found.Namespace, found.Version, c.Installed = namespace, version, found
			found.read(installer)
			if name := set.Annotations["meta.helm.sh/release-name"]; isReleaseName(name) {
				found.Release = name
			}
		}
	}
}

// findInstallation returns the namespace of an existing installation, or "". It looks for two
// ClusterRoleBindings, at least one of which every installation has. Only a cluster administrator can
// create a ClusterRoleBinding, but anyone can label a DaemonSet, so labels would prove nothing.
func (c *Cluster) findInstallation(ctx context.Context, client *fleet.Client) (namespace string) {
	for _, account := range []string{"capture-cni", "capture-cni-node"} { // an uninstallation leaves the first one
		binding := get(ctx, c, client, "", "clusterrolebindings", account, &rbacv1.ClusterRoleBinding{})
		if binding != nil && len(binding.Subjects) == 1 && binding.Subjects[0].Name == account {
			namespace = binding.Subjects[0].Namespace
		}
	}
	return namespace
}

// isReleaseName reports whether Helm accepts this name for a release.
func isReleaseName(name string) bool {
	return len(name) <= 53 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// read reads the chart's values from the environment variables of an agent's container. Older releases
// lack these variables, so their values stay unknown.
func (i *Installed) read(installer corev1.Container) {
	if mode := fleet.Variable(installer, "CAPTURE_CNI_MODE"); mode != "" {
		i.Values["mode"] = mode
	}
	var netconf struct {
		Backend string `json:"backend"`
	}
	if json.Unmarshal([]byte(fleet.NetConf(installer)), &netconf) == nil {
		i.Values["netconf.backend"] = cmp.Or(netconf.Backend, "nftables")
	}
}

// checkInstalled adds findings about an existing installation: its version, a namespace other than the
// given one, pinned images, and values that would change. checkInstalled then removes all other values
// from Values.
func (r *Report) checkInstalled(c *Cluster) {
	installed := c.Installed
	if installed == nil {
		return
	}
	if installed.Namespace != r.namespace {
		r.add(report.Problem, report.InstalledElsewhere, "capture-cni",
			"run this again with "+report.Command("--agent-namespace", installed.Namespace),
			"it is installed in namespace %s: a cluster has one installation", installed.Namespace)
		return
	}
	r.add(report.Note, report.Upgrade, "capture-cni", "deploy/guides/upgrade.md",
		"version %s is installed: this report is about an upgrade", installed.Version)
	if len(installed.Pinned) > 0 {
		r.add(report.Note, report.ImagePinned, "image", "set image.tag and image.digest, also those of pools, to an image of the chart's release",
			"pinned to %s: another release's chart does not work with it", strings.Join(installed.Pinned, ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(r.Values)) {
		now, known := installed.Values[key]
		if !known || now == r.Values[key] {
			delete(r.Values, key)
			continue
		}
		r.add(report.Note, report.Upgrade, "capture-cni", "", "%s is %s now, and would be %s", key, now, r.Values[key])
	}
}
