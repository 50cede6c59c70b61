// SPDX-License-Identifier: Apache-2.0

package main

// cell is a combination of versions that the other tests don't have.
type cell struct {
	name  string
	parts map[string]string // modules below e2e/parts, each in the place of another
	build []string          // arguments of make
	tests [][]string        // arguments of go test
}

// cells are all of them. What a version lacks is skipped, with its reason.
var cells = []cell{
	{
		name:  "kubernetes-1.30",
		parts: map[string]string{"kubernetes-1.30": "kubernetes"},
		build: []string{"bin/parts/kubernetes"}, // the tests' own kubectl waits as that of 1.30 can't
		// What depends on the kubelet and the API server, without what needs a
		// MutatingAdmissionPolicy in v1 (1.36), tokens that are bound to Nodes (1.31), the resize
		// of running pods (1.33) or user namespaces without a feature gate (1.33).
		tests: [][]string{
			{"e2e/cluster/pods", "-skip=^TestAgentPolicies$/^tokens$|^TestAdmission$/^subresources$/^resize$", "-run=^Test(Admission|AgentPolicies|Annotations|DNS|Guides|Injected|IstioInitListed|NotReady|Probes|Recorded|Rollout|Transparent)$"},
			{"e2e/cluster/agents", "-run=^Test(AddsWithToken|AddsWithoutToken|Events|GuardEvicts|GuardRepairs|KubectlTest|Reboot|Report|Taint|TaintPolicy)$"},
		},
	},
	{
		name:  "kubernetes-1.36",
		parts: map[string]string{"kubernetes-1.36": "kubernetes"},
		build: []string{"bin/parts/kubernetes", "bin/parts/kubectl"},
		tests: [][]string{
			{"e2e/cluster/pods", "-run=^Test(Admission|AgentPolicies|Annotations|DNS|Guides|Injected|NotReady|Probes|Rollout|Transparent|UserNamespace)$"},
			{"e2e/cluster/agents", "-run=^Test(AddsWithToken|AddsWithoutToken|Events|GuardEvicts|GuardRepairs|Reboot|Taint|TaintPolicy)$"},
		},
	},
	{
		name:  "cri-o-1.34",
		parts: map[string]string{"crio-1.34": "crio"},
		build: []string{"bin/parts/crio"},
		// What depends on how the runtime loads lists, calls plugins and tells the guard.
		tests: [][]string{
			{"e2e/cluster/pods", "-run=^Test(Annotations|DropInWithCRIO|Injected|Recorded|Rollout)$"},
			{"e2e/cluster/agents", "-run=^Test(CRIO.*|GuardRepairs|Reboot|Report)$"},
		},
	},
	{
		name:  "istio-1.22",
		parts: map[string]string{"istio-1.22": "istio"},
		build: []string{"bin/parts/istio/pilot-discovery"},
		tests: [][]string{
			// What is skipped differs with Istio 1.22's own rules from later ones, which the tests
			// demand: it captures DNS to ::6 and to an excluded port, and sends elsewhere what
			// arrives on a rerouted interface. Its injector's tests have 90 pods.
			{"e2e/traffic", "-run=^(TestOracleInjected|TestOracleScenarios|TestOracleWays)$", "-skip=^TestOracleScenarios$/^(DNS|.*rerouted)|^TestOracleInjected$/^enough$"},
			// Istio 1.22 chooses native sidecars for all pods of an istiod, not for each, its
			// istiod removes no taint, and the tests of mTLS expect native sidecars.
			{"e2e/cluster/mesh", "-skip=^TestRevisions$|^TestBothTaints$|^TestMutualTLS|^TestSidecars$/^native"},
		},
	},
	{
		name:  "helm-4",
		parts: map[string]string{"helm-4": "kubernetes"}, // whose module has Helm 3
		build: []string{"bin/parts/helm", "HELM=helm.sh/helm/v4/cmd/helm"},
		tests: [][]string{
			{"deploy", "-run=^TestOracle"},
			{"e2e/cluster/pods", "-run=^(TestGuides|TestRollout|TestRemoval|TestUninstallAlone|TestAbsentRefuses)$"},
		},
	},
}
