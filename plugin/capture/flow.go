// SPDX-License-Identifier: Apache-2.0

package capture

// flow is a mesh's chains of nat for one hook: the first rule that matches decides, and a
// packet that no rule matches passes. Packets enter the first chain, which has no name here,
// by the hook.
type flow []Chain

// Where rules of a flow send packets, in addition to another of its chains.
var (
	toInbound  = Action{Verdict: Jump, Chain: chainInRedirect}
	toOutbound = Action{Verdict: Jump, Chain: chainRedirect}
)

func (in *Intent) toDNS() Action { return Action{Verdict: Redirect, Port: in.DNSPort} }

// gotoChain continues in another chain, from which the packet does not come back to this one.
func gotoChain(chain string) Action { return Action{Verdict: Goto, Chain: chain} }

// chain begins a chain, to which later rules are added.
func (f *flow) chain(name string) { *f = append(*f, Chain{Name: name}) }

func (f *flow) add(m Match, do Action, why string) {
	if len(*f) == 0 {
		f.chain("")
	}
	last := &(*f)[len(*f)-1]
	last.Rules = append(last.Rules, Rule{m, do, why})
}

// exempt has matching packets pass. For an empty list it adds no rule.
func (f *flow) exempt(m Match, why string) {
	if !m.empty() {
		f.add(m, Action{Verdict: Return}, why)
	}
}

// addFlow adds a flow to the open chain, and its further chains to that chain's table, with
// each rule as rewrite returns it, or without it.
func (b *builder) addFlow(f flow, rewrite func(Rule) (Rule, bool)) {
	table := b.chains[len(b.chains)-1].Table
	for _, chain := range f {
		if chain.Name != "" {
			b.chain(table, chain.Name)
		}
		for _, r := range chain.Rules {
			if r, ok := rewrite(r); ok {
				b.add(r.Match, r.Do, r.Why)
			}
		}
	}
}

func asInNAT(r Rule) (Rule, bool) { return r, true }
