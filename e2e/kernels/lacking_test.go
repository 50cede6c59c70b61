// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// TestLacking starts pods on kernels that lack something. Whatever that is, pods outside
// the mesh start, a meshed pod starts captured or not at all, and nothing is left behind.
func TestLacking(t *testing.T) {
	suite := buildSuite(t)
	image := fetchAny(t)
	legacy := []string{"ip6_tables", "ip6table_raw", "iptable_nat", "xt_CT", "xt_REDIRECT", "xt_owner"}
	for _, tt := range []lacking{
		{
			name: "modules of iptables-legacy",
			trials: []Trial{
				// Not a module of nf_tables is needed where the operator chose iptables-legacy.
				{Backend: "iptables-legacy", Mode: "REDIRECT", Blocked: append(legacy, "nf_tables")},
				{Backend: "iptables-legacy", Mode: "TPROXY", Blocked: []string{"xt_TPROXY", "nf_tables"}},
				{Backend: "iptables-legacy", Mode: "REDIRECT", OnlyIPv4: true, Blocked: []string{"ip6_tables", "ip6table_mangle", "ip6table_filter", "nf_tables"}},
			},
			expect: []func(*testing.T, []Attempt){named(legacy...), named("xt_TPROXY"), capturedAtOnce},
		},
		{
			name: "modules of nf_tables",
			trials: []Trial{
				{Backend: "nftables", Mode: "REDIRECT", Blocked: []string{"nf_tables", "nft_chain_nat", "nft_redir", "nft_ct"}},
				{Backend: "nftables", Mode: "TPROXY", Blocked: []string{"nft_tproxy"}},
				{Backend: "iptables-nft", Mode: "REDIRECT", Blocked: []string{"nft_compat"}},
			},
			expect: []func(*testing.T, []Attempt){
				named("nf_tables", "nft_chain_nat", "nft_redir", "nft_ct"), named("nft_tproxy"), named("nft_compat"),
			},
		},
		{
			name: "translations of Consul",
			trials: []Trial{
				{Mesh: config.Consul, Backend: "iptables-legacy", Blocked: []string{"xt_nat", "nf_tables"}},
				{Mesh: config.Consul, Backend: "nftables", Blocked: []string{"nft_nat"}},
			},
			expect: []func(*testing.T, []Attempt){named("xt_nat"), named("nft_nat")},
		},
		{
			name: "module of a fence",
			trials: []Trial{
				{Backend: "auto", Mode: "REDIRECT", Blocked: []string{"xt_hl", "nf_tables"}},
				{Backend: "iptables-legacy", Mode: "REDIRECT", Fence: true, Blocked: []string{"xt_hl", "nf_tables"}},
			},
			expect: []func(*testing.T, []Attempt){startsOnlyFenceless("xt_hl"), named("xt_hl")},
		},
		{
			name: "auto without nft_nat",
			trials: []Trial{
				{Backend: "auto", Mode: "REDIRECT", Blocked: []string{"nft_nat"}},
				{Mesh: config.Consul, Backend: "iptables-nft", Blocked: []string{"xt_nat"}},
				{Mesh: config.Consul, Backend: "auto", Blocked: []string{"nft_nat"}},
			},
			expect: []func(*testing.T, []Attempt){
				chose("nftables", "", "", "nft_nat"), named("xt_nat"), chose("iptables-legacy", "nft_nat", "", "nft_nat"),
			},
		},
		{
			name:   "auto without nf_tables",
			trials: []Trial{{Backend: "auto", Mode: "REDIRECT", Blocked: []string{"nf_tables"}}},
			expect: []func(*testing.T, []Attempt){chose("iptables-legacy", "nf_tables", "", "nf_tables")},
		},
		{
			name:   "auto without nft_tproxy",
			trials: []Trial{{Backend: "auto", Mode: "REDIRECT", Blocked: []string{"nft_tproxy"}}},
			expect: []func(*testing.T, []Attempt){chose("nftables", "", "nft_tproxy", "ip_tables")},
		},
		{
			name:  "nfnetlink",
			guest: Guest{Without: []string{"nfnetlink"}},
			trials: []Trial{
				{Backend: "nftables", Mode: "REDIRECT"},
				{Backend: "iptables-legacy", Mode: "REDIRECT"},
				{Backend: "auto", Mode: "REDIRECT"},
			},
			expect: []func(*testing.T, []Attempt){refused("lacks nfnetlink"), captured, chose("iptables-legacy", "nfnetlink", "", "nf_tables")},
		},
		{
			name:  "IPv6",
			guest: Guest{Append: "ipv6.disable=1"},
			trials: []Trial{
				{Backend: "auto", Mode: "TPROXY"},
				{Backend: "nftables", Mode: "REDIRECT"},
				{Backend: "nftables", Mode: "TPROXY"},
				{Backend: "iptables-nft", Mode: "REDIRECT"},
				{Backend: "iptables-legacy", Mode: "REDIRECT"},
				{Backend: "iptables-legacy", Mode: "TPROXY"},
			},
			expect: []func(*testing.T, []Attempt){chose("nftables", "", "", "ip_tables"), captured, captured, captured, captured, captured},
		},
		{
			name:   "room for connections",
			guest:  Guest{Job: Job{Modules: []string{"nf_conntrack"}, Sysctls: map[string]string{"net/netfilter/nf_conntrack_max": "3"}}},
			trials: []Trial{{Backend: "nftables", Mode: "REDIRECT", Connections: 6, Repaired: true}},
			expect: []func(*testing.T, []Attempt){crowded},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { t.Parallel(); tt.test(t, image, suite) })
	}
}

// lacking is a kernel, or a node, that lacks something.
type lacking struct {
	name   string
	guest  Guest
	trials []Trial
	expect []func(t *testing.T, attempts []Attempt)
}

func (l lacking) test(t *testing.T, image Image, suite Suite) {
	t.Helper()
	l.guest.Image, l.guest.Suite = image, suite
	for _, trial := range l.trials {
		trial.Connections = max(1, trial.Connections)
		run, err := trial.Run()
		if err != nil {
			t.Fatal(err)
		}
		l.guest.Job.Runs = append(l.guest.Job.Runs, run)
	}
	for i, outcome := range boot(t, l.guest) {
		t.Run(outcome.Name, func(t *testing.T) {
			attempts, err := Attempts(outcome)
			if err != nil {
				t.Fatal(err)
			}
			for _, attempt := range attempts {
				attempt.expectHarmless(t)
			}
			l.expect[i](t, attempts)
		})
	}
}

// fetchAny fetches the second kernel, or else another.
func fetchAny(t *testing.T) Image {
	t.Helper()
	return fetchFirst(t, All[1], All[2], All[0])
}

// fetchFirst fetches the first of some kernels that the mirror has.
func fetchFirst(t *testing.T, kernels ...Kernel) Image {
	t.Helper()
	for _, kernel := range kernels {
		if image, err := fetch(t, kernel); err == nil {
			return image
		}
	}
	t.Fatal("the mirror has none of the kernels: put newer ones into kernel.go")
	return Image{}
}

// expectHarmless expects what holds for every pod, captured or not.
func (a Attempt) expectHarmless(t *testing.T) {
	t.Helper()
	if a.Unmeshed != "" {
		t.Errorf("a pod outside the mesh fails: %s", a.Unmeshed)
	}
	if a.Add != "" && a.Left != "" {
		t.Errorf("a failed ADD leaves\n%s", a.Left)
	}
	if a.Del != "" || a.LeftAfterDel != "" {
		t.Errorf("DEL: %s, and leaves\n%s", a.Del, a.LeftAfterDel)
	}
	if slices.Contains(a.Answers, "direct") || a.Repair.Answer == "direct" {
		t.Errorf("not captured: answers %q, after a repair %q", a.Answers, a.Repair.Answer)
	}
}

// captured expects a single ADD, which succeeds.
func captured(t *testing.T, attempts []Attempt) {
	t.Helper()
	last := attempts[len(attempts)-1]
	if last.Add != "" || last.Check != "" || !slices.Equal(last.Answers, []string{"proxy"}) {
		t.Errorf("ADD: %s\nCHECK: %s\nanswers: %q; blocked: %q", last.Add, last.Check, last.Answers, last.Blocked)
	}
}

// capturedAtOnce expects an ADD that needs none of the modules that are blocked.
func capturedAtOnce(t *testing.T, attempts []Attempt) {
	t.Helper()
	if len(attempts) != 1 {
		t.Errorf("%d attempts: %+v", len(attempts), attempts)
	}
	captured(t, attempts)
}

// chose expects a backend that was chosen for what the kernel lacks, with a captured pod,
// and without a module of the other backend.
func chose(backend config.Backend, lacks, lacksForTProxy, unloaded string) func(*testing.T, []Attempt) {
	return func(t *testing.T, attempts []Attempt) {
		t.Helper()
		capturedAtOnce(t, attempts)
		v := attempts[0].Verdict
		if v.Chosen != backend || !names(v.Reason, lacks) || !names(v.NoTProxy, lacksForTProxy) {
			t.Errorf("%+v: want %s, as it lacks %q, and %q for TPROXY", v, backend, lacks, lacksForTProxy)
		}
		if slices.Contains(attempts[0].Modules, unloaded) {
			t.Errorf("the test loaded %s: %q", unloaded, attempts[0].Modules)
		}
	}
}

// startsOnlyFenceless expects a chosen backend, with a captured pod, on a kernel that lacks a module for
// a fence.
func startsOnlyFenceless(module string) func(*testing.T, []Attempt) {
	return func(t *testing.T, attempts []Attempt) {
		t.Helper()
		capturedAtOnce(t, attempts)
		if v := attempts[0].Verdict; v.Chosen == "" || !names(v.NoFence, module) {
			t.Errorf("%+v: want a backend, but no fence, as it lacks %q", v, module)
		}
	}
}

// names reports whether a text says that the kernel lacks a module, or is empty where none
// should be named.
func names(text, module string) bool {
	return module == "" && text == "" || module != "" && strings.Contains(text, "the kernel lacks "+module)
}

// refused expects an ADD that fails for a reason.
func refused(reason string) func(*testing.T, []Attempt) {
	return func(t *testing.T, attempts []Attempt) {
		t.Helper()
		if len(attempts) != 1 || !strings.Contains(attempts[0].Add, reason) {
			t.Errorf("%+v: want %q", attempts, reason)
		}
	}
}

// named expects errors to name these modules, and no others that are blocked, until all
// are loaded, and then an ADD that succeeds.
func named(modules ...string) func(*testing.T, []Attempt) {
	return func(t *testing.T, attempts []Attempt) {
		t.Helper()
		for _, attempt := range attempts[:len(attempts)-1] {
			if !strings.Contains(attempt.Add, "the kernel lacks ") {
				t.Errorf("without %q: %s", attempt.Blocked, attempt.Add)
			}
		}
		captured(t, attempts)
		for _, module := range attempts[0].Blocked {
			if was := !slices.Contains(attempts[len(attempts)-1].Blocked, module); was != slices.Contains(modules, module) {
				t.Errorf("%s was named: %v", module, was)
			}
		}
	}
}

// crowded expects connections beyond the limit to fail, and a repair to say that it lost
// some.
func crowded(t *testing.T, attempts []Attempt) {
	t.Helper()
	last := attempts[len(attempts)-1]
	if last.Add != "" || last.Check != "" || last.Repair.Fault != "" {
		t.Errorf("ADD: %s\nCHECK: %s\nrepair: %s", last.Add, last.Check, last.Repair.Fault)
	}
	if !slices.Contains(last.Answers, "proxy") || !slices.ContainsFunc(last.Answers, func(a string) bool { return strings.Contains(a, "timeout") }) {
		t.Errorf("answers %q: some of the connections are captured, and the others fail", last.Answers)
	}
	if last.Repair.Lost == "" {
		t.Error("the repair does not say that connections are lost")
	}
}
