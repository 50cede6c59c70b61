// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// Installed is capture-cni as a cluster has it.
type Installed struct {
	Namespace string
	Release   string // of Helm; "" for a manifest
	Version   string
	Values    map[string]string // those that this package chooses, as they are now
}

// readInstalled reads what is installed, in whichever namespace.
func (c *Cluster) readInstalled() {
	for _, set := range c.DaemonSets {
		labels := set.Labels
		if labels["app.kubernetes.io/name"] != "capture-cni" || labels["app.kubernetes.io/component"] != "node" || set.Spec.Template.Labels["capture-cni.io/pool"] != "" {
			continue
		}
		c.Installed = &Installed{
			Namespace: set.Namespace, Release: set.Annotations["meta.helm.sh/release-name"],
			Version: labels["app.kubernetes.io/version"], Values: map[string]string{},
		}
		for _, container := range set.Spec.Template.Spec.Containers {
			if container.Name == fleet.InstallerContainer {
				c.Installed.read(container)
			}
		}
	}
}

// read reads the values that an agent's container shows: older releases had them elsewhere.
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

// checkInstalled compares what is installed with what an installation would be.
func (r *Report) checkInstalled(c *Cluster) {
	installed := c.Installed
	if installed == nil {
		return
	}
	if installed.Namespace != r.namespace {
		r.add(Problem, "capture-cni", "run this again with --agent-namespace "+installed.Namespace, "it is installed in namespace %s: a cluster has one installation", installed.Namespace)
		return
	}
	r.add(Note, "capture-cni", "deploy/guides/upgrade.md", "version %s is installed: what follows is about an upgrade", installed.Version)
	for _, key := range slices.Sorted(maps.Keys(r.Values)) {
		now, known := installed.Values[key]
		if !known || now == r.Values[key] {
			delete(r.Values, key)
			continue
		}
		r.add(Note, "capture-cni", "", "%s is %s now, and would be %s", key, now, r.Values[key])
	}
}
