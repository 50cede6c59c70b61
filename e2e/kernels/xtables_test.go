// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Modules that newer node images leave out, and programs that small ones do.
var (
	legacyTables  = []string{"ip_tables", "ip6_tables", "arp_tables", "iptable_*", "ip6table_*", "arptable_*"}
	xtables       = append([]string{"nft_compat", "x_tables", "xt_*", "ipt_*", "ip6t_*", "arpt_*", "ebt*"}, legacyTables...)
	tablePrograms = []string{"nft", "ip*tables*"}
)

// withoutIPTables are nodes on which iptables works in part, or not at all.
var withoutIPTables = []struct {
	name             string
	modules          []string // that the kernel lacks
	programs         []string // that the node lacks
	nft, legacy      string   // what our backends of iptables report, "" if they capture
	othersThatCanToo []string
}{
	{
		name: "legacy tables are switched off", modules: legacyTables,
		legacy:           "the kernel lacks ip6table_raw",
		othersThatCanToo: []string{istioCNI, istioCNINative, istioInit, istioInitNative, linkerdInitNFT},
	},
	{
		name: "no module of iptables", modules: xtables,
		nft: "the kernel lacks nft_compat or ", legacy: "the kernel lacks ip6table_raw",
		othersThatCanToo: []string{istioCNINative, istioInitNative},
	},
	{
		name: "no module and no program", modules: xtables, programs: tablePrograms,
		nft: "this host does not have it", legacy: "this host does not have it",
		othersThatCanToo: []string{istioInitNative}, // its image has nft
	},
}

// captors are other projects' programs.
var captors = []Captor{
	{Name: istioCNI, Program: "istio-cni", Configuration: istioConf},
	{Name: istioCNINative, Program: "istio-cni", Configuration: strings.Replace(istioConf, "{", `{"native_nftables": true, `, 1)},
	{Name: istioInit, Program: "pilot-agent", Args: lab.IstioInit()},
	{Name: istioInitNative, Program: "pilot-agent", Args: append(lab.IstioInit(), "--native-nftables")},
	{Name: linkerdInitNFT, Program: "linkerd2-proxy-init", Args: linkerdInit("iptables-nft")},
	{Name: linkerdInitLegacy, Program: "linkerd2-proxy-init", Args: linkerdInit("iptables-legacy")},
}

const (
	istioCNI          = "istio-cni"
	istioCNINative    = "istio-cni with nativeNftables"
	istioInit         = "istio-init"
	istioInitNative   = "istio-init with nativeNftables"
	linkerdInitNFT    = "linkerd2-proxy-init with iptables-nft"
	linkerdInitLegacy = "linkerd2-proxy-init with iptables-legacy"

	istioConf = `{"cniVersion": "1.0.0", "name": "istio-cni", "type": "istio-cni", "cni_agent_run_dir": "DIRECTORY",
		"kubernetes": {"kubeconfig": "DIRECTORY/istio-cni-kubeconfig"}, "prevResult": {"cniVersion": "1.0.0"}}`
)

func linkerdInit(program string) []string {
	return []string{
		"--incoming-proxy-port=15006", "--outgoing-proxy-port=15001", "--proxy-uid=1337",
		"--firewall-bin-path=" + program, "--firewall-save-bin-path=" + program + "-save",
	}
}

// TestWithoutIPTables captures pods on nodes whose kernel and image have less and less of
// iptables: the node chooses nftables, which executes no program.
func TestWithoutIPTables(t *testing.T) {
	suite := buildSuite(t)
	image := fetchFirst(t, All[2], All[1], All[0])
	for _, node := range withoutIPTables {
		iptables := func(reason string) func(*testing.T, []Attempt) {
			if reason == "" {
				return captured
			}
			return refused(reason)
		}
		t.Run(node.name, func(t *testing.T) {
			t.Parallel()
			lacking{
				guest: Guest{Without: node.modules, Job: Job{Lacking: node.programs}},
				trials: []Trial{
					{Backend: "auto", Mode: "REDIRECT", Repaired: true},
					{Backend: "auto", Mode: "TPROXY", Repaired: true},
					{Backend: "iptables-nft", Mode: "REDIRECT"},
					{Backend: "iptables-legacy", Mode: "REDIRECT"},
				},
				expect: []func(*testing.T, []Attempt){
					repaired, repaired, iptables(node.nft), iptables(node.legacy),
				},
			}.test(t, image, suite)
		})
	}
}

// TestSmokeWithoutIPTables sends packets on the least of these nodes, and has an agent, whose
// container tests the backend, and a guard.
func TestSmokeWithoutIPTables(t *testing.T) {
	var packages []string
	for _, s := range smoke {
		packages = append(packages, s.Package)
	}
	suite, err := buildSuite(t, packages...).WithAppArmor(t.Context(), t.TempDir(), kept)
	lab.Check(t, err)
	run, err := Confine([]Confinement{{Name: "agent and guard", Agent: ContainerdProfile, Guard: ContainerdProfile, Guarded: true}})
	lab.Check(t, err)
	guest := Guest{
		Image: fetchFirst(t, All[2], All[1], All[0]), Suite: suite, Append: "apparmor=1 security=apparmor",
		Without: xtables, Job: Job{Lacking: tablePrograms, Runs: []Run{run}},
	}
	var selected []Selection
	for _, s := range smoke {
		// TestBackendsByProtocol tries each backend next to another.
		s.Tests = slices.DeleteFunc(slices.Clone(s.Tests), func(name string) bool {
			return strings.Contains(name, "iptables") || strings.HasPrefix(name, "TestBackendsByProtocol")
		})
		selected = append(selected, s)
		guest.Job.Runs = append(guest.Job.Runs, s.Run())
	}
	outcomes := boot(t, guest)
	for i, s := range selected {
		if err := s.Failure(outcomes[i+1]); err != nil {
			t.Errorf("%s: %v", s.Package, err)
		}
	}
	results, err := ConfinedBy(outcomes[0])
	lab.Check(t, err)
	works(t, results[0])
}

// repaired expects the backend nftables, and a pod that the guard captures by it as well.
func repaired(t *testing.T, attempts []Attempt) {
	t.Helper()
	chose("nftables", "", "", "nft_compat")(t, attempts)
	if want := (Repair{Answer: "proxy"}); attempts[0].Repair != want {
		t.Errorf("a repair ends with %+v", attempts[0].Repair)
	}
}

// TestOracleWithoutIPTables has other projects' programs capture pods there. A pod that they
// can't capture does not start.
func TestOracleWithoutIPTables(t *testing.T) {
	suite, err := buildSuite(t).With(lab.Part(t, "istio/istio-cni"), lab.Part(t, "istio/pilot-agent"), lab.Part(t, "linkerd2-proxy-init"))
	lab.Check(t, err)
	image := fetchFirst(t, All[2], All[1], All[0])
	run, err := Capture(captors)
	lab.Check(t, err)
	for _, node := range withoutIPTables {
		t.Run(node.name, func(t *testing.T) {
			t.Parallel()
			results, err := CapturedBy(boot(t, Guest{Image: image, Suite: suite, Without: node.modules, Job: Job{Lacking: node.programs, Runs: []Run{run}}})[0])
			lab.Check(t, err)
			if len(results) != len(captors) {
				t.Errorf("%d of %d programs: %+v", len(results), len(captors), results)
			}
			for _, result := range results {
				answer, fails := "proxy", false
				if !slices.Contains(node.othersThatCanToo, result.Name) {
					answer, fails = "direct", true
				}
				if result.Answer != answer || (result.Fault != "") != fails {
					t.Errorf("%s: answered by %q, want %q: %s", result.Name, result.Answer, answer, result.Fault)
				}
			}
		})
	}
}
