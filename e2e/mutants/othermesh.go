// SPDX-License-Identifier: Apache-2.0

package main

// otherMeshMutants break what the agent does next to other meshes' plugins, and what it
// notices of a node that works against it.
var otherMeshMutants = []mutant{
	{
		name: "no-meshed-pod-starts-next-to-istio-cni",
		file: "install/entry/beside.go",
		from: "!plugin.IsIstioCNI() || allowIstioCNI && !plugin.Ambient",
		to:   "!plugin.IsIstioCNI() || !plugin.Ambient",
		by:   by(quick, "install/node", "TestRefusedBesideIstioCNI"),
	},
	{
		name: "migration-from-ambient-captures-twice",
		file: "install/entry/beside.go",
		from: "allowIstioCNI && !plugin.Ambient",
		to:   "allowIstioCNI",
		by:   by(quick, "install/node", "TestRefusedBesideIstioCNI"),
	},
	{
		name: "restart-next-to-istio-cni-gives-up-the-entry",
		file: "install/entry/beside.go",
		from: "standingMode(net, p); found {",
		to:   "standingMode(net, p); found && mode == terms.Auto {",
		by:   by(quick, "install/node", "TestEntryStays"),
	},
	{
		name: "mode-change-next-to-istio-cni-captures-twice",
		file: "install/entry/beside.go",
		from: "\t\tcase kept:\n\t\t\tmode = other.kept\n",
		to:   "",
		by:   by(quick, "install/node", "TestEntryStays"),
	},
	{
		name: "trial-drop-in-next-to-istio-cni",
		file: "install/node/decide.go",
		from: "if err != nil || mode != n.Mode {",
		to:   "if n.Mode != terms.Auto && (err != nil || mode != n.Mode) {",
		by:   by(root, "e2e/agent", "TestAgentBesideIstioCNI"),
	},
	{
		name: "denial-does-not-name-the-security-module",
		file: "install/node/node.go",
		from: "return changed, n.explained(n.Settings.NetDir, err)",
		to:   "return changed, err",
		by:   by(root, "e2e/agent", "TestDeniedWrite"),
	},
	{
		name: "plugin-does-not-name-apparmor",
		file: "plugin/verbs/errors.go",
		from: "text := podnet.Explained(f).Error()",
		to:   "text := f.Error()",
		by:   by(root, "e2e/kernels", "TestAppArmor"),
	},
	{
		name: "guard-does-not-name-apparmor",
		file: "install/guard/examine.go",
		from: "Reason: podnet.Explained(err).Error()",
		to:   "Reason: err.Error()",
		by:   by(root, "e2e/kernels", "TestAppArmor"),
	},
	{
		name: "chart-places-next-to-istio-cni",
		file: "deploy/chart/templates/_node.tpl",
		from: "{{ .Values.besideIstioCNI | quote }}",
		to:   `{{ .Values.besideIstioCNI | not | quote }}`,
		by:   by(unit, "deploy", "TestBesideIstioCNI"),
	},
}
