// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/capture-cni/capture-cni/install/report"
)

// injection contains the relevant values of istiod's injector.
type injection struct {
	Pilot struct {
		CNI *struct {
			Enabled  bool   `json:"enabled"`
			Provider string `json:"provider"`
		} `json:"cni"`
	} `json:"pilot"`
	Older struct { // before Istio 1.24
		Enabled bool  `json:"enabled"`
		Chained *bool `json:"chained"`
	} `json:"istio_cni"`
}

// cni returns whether istiod injects pods for a CNI plugin, and for which provider. Istio before 1.24
// has other values.
func (i injection) cni() (enabled bool, provider string) {
	if i.Pilot.CNI != nil {
		return i.Pilot.CNI.Enabled, cmp.Or(i.Pilot.CNI.Provider, "default")
	}
	if i.Older.Chained != nil && !*i.Older.Chained {
		return i.Older.Enabled, "multus"
	}
	return i.Older.Enabled, "default"
}

// checkInjectors adds findings about the injector of each revision of istiod, and chooses the mode.
func (r *Report) checkInjectors(c *Cluster) {
	providers := map[string]bool{}
	for _, one := range c.Injectors {
		subject := "istiod " + cmp.Or(one.Labels["istio.io/rev"], "default")
		var values injection
		if err := json.Unmarshal([]byte(one.Data["values"]), &values); err != nil {
			r.add(report.Note, report.InjectorUnreadable, subject, "check pilot.cni.enabled by hand",
				"the values of %s/%s can't be read: %v", one.Namespace, one.Name, err)
			continue
		}
		enabled, provider := values.cni()
		if !enabled {
			r.add(report.Note, report.IstioInit, subject, "set pilot.cni.enabled=true in istiod's values once capture-cni is installed",
				"it injects istio-init, which captures pods itself and needs NET_ADMIN: such pods are exempt")
			continue
		}
		providers[provider] = true
		r.ok(subject, "it injects without istio-init, for provider %s", provider)
	}
	if len(c.Injectors) == 0 && !slices.ContainsFunc(report.MeshPlugins(), func(other string) bool { return len(c.running(other)) > 0 }) {
		r.add(report.Note, report.NoInjector, "istiod", "install istiod with pilot.cni.enabled=true",
			"no configuration of istiod's injector was found; only injected pods, and those with capture-cni.io/proxy, are in a mesh")
	}
	r.chooseMode(providers)
}

func (r *Report) chooseMode(providers map[string]bool) {
	openshift := r.Values["platform"] == "openshift"
	switch {
	case providers["multus"] && providers["default"]:
		r.add(report.Problem, report.ProvidersDiffer, "istiod", "set pilot.cni.provider alike in all revisions",
			"its revisions inject for provider default and for multus: one mode serves one of them")
	case providers["multus"] && !openshift:
		r.Values["mode"] = "multus"
	case providers["default"] && openshift:
		r.Values["mode"] = "multus-chain"
		r.add(report.Note, report.ProviderDefault, "mode", "deploy/guides/openshift.md",
			"provider default on OpenShift needs the auxiliary chain of Multus, from 4.19; or set pilot.cni.provider=multus")
	}
}

// migrations maps each plugin in report.MeshPlugins to its mesh and to the guide for migration.
var migrations = map[string][2]string{
	linkerdCNI:   {"Linkerd", "migrate-linkerd-cni.md"},
	"kuma-cni":   {"Kuma", "migrate-consul-kuma.md"},
	"consul-cni": {"Consul", "migrate-consul-kuma.md"},
}

// checkMeshes adds findings about the plugins of other meshes, istio-cni and ambient mode.
func (r *Report) checkMeshes(c *Cluster) {
	found := false
	for _, other := range report.MeshPlugins() {
		for _, set := range c.running(other) {
			found = true
			guide := migrations[other]
			r.add(report.Note, report.OtherMesh, other, "deploy/guides/"+guide[1]+", to capture them instead",
				"it is in namespace %s: it captures %s's pods", set.Namespace, guide[0])
		}
	}
	for _, set := range c.running(report.IstioCNI) {
		found = true
		r.checkIstioCNI(c, set.Namespace)
	}
	for _, set := range c.running(ztunnel) { // only a note, because anyone can create such a DaemonSet
		found = true
		r.add(report.Note, report.AmbientMode, "ambient mode", "disable ambient mode, or keep istio-cni",
			"ztunnel runs in namespace %s: capture-cni is not for clusters with ambient mode", set.Namespace)
	}
	if !found && c.DaemonSets != nil {
		r.ok("other meshes", "no plugin of another mesh, no ambient mode")
	}
}

func (r *Report) checkIstioCNI(c *Cluster, namespace string) {
	if c.IstioCNI != nil && c.IstioCNI.Data["AMBIENT_ENABLED"] == "true" {
		r.add(report.Problem, report.AmbientMode, "istio-cni", "deploy/guides/migrate-istio-cni.md, section Ambient mode",
			"it is in namespace %s with ambient mode: agents next to it add no entry", namespace)
		return
	}
	r.Guide = "deploy/guides/migrate-istio-cni.md"
	r.add(report.Note, report.BesideIstioCNI, "istio-cni", "follow "+r.Guide+", from its first step on",
		"it is in namespace %s: if both are in one list, no pod of the mesh starts", namespace)
}
