// SPDX-License-Identifier: Apache-2.0

package capture

// flow is what a mesh decides about the packets of one hook: the first step that matches
// decides, and a packet that no step matches passes. It is rendered twice: in nat, and
// where nat does not decide (refuse.go).
type flow struct{ branches []branch }

// branch is a chain of steps. A flow's first has no name: packets enter it by the hook.
type branch struct {
	name  string
	steps []step
}

// step decides about the packets that match.
type step struct {
	match Match
	to    target
	why   string
}

// target is where a step sends packets: to one of these, or on to a branch.
type target string

const (
	pass       target = "pass"
	toInbound  target = "inbound" // the proxy's ports
	toOutbound target = "outbound"
	toDNS      target = "dns"
)

// policy is what becomes of the packets of each target, in the chains of one table.
type policy struct {
	table                  Table
	inbound, outbound, dns Action
}

func (p policy) action(to target) Action {
	switch to {
	case pass:
		return Action{Verdict: Return}
	case toInbound:
		return p.inbound
	case toOutbound:
		return p.outbound
	case toDNS:
		return p.dns
	}
	return Action{Verdict: Goto, Chain: string(to)}
}

// branch begins a branch, to which later steps are added.
func (f *flow) branch(name string) { f.branches = append(f.branches, branch{name: name}) }

func (f *flow) add(m Match, to target, why string) {
	if len(f.branches) == 0 {
		f.branch("")
	}
	last := &f.branches[len(f.branches)-1]
	last.steps = append(last.steps, step{m, to, why})
}

// exempt has matching packets pass. For an empty list it adds no step.
func (f *flow) exempt(m Match, why string) {
	if !m.empty() {
		f.add(m, pass, why)
	}
}

func (f flow) empty() bool { return len(f.branches) == 0 }

// render adds a flow to the open chain, and a chain for each of its branches. Outside nat,
// only SYNs meet it, and queries over UDP that are refused by IPv6.
func (b *builder) render(f flow, p policy) {
	for _, branch := range f.branches {
		if branch.name != "" {
			b.chain(p.table, branch.name)
		}
		for _, s := range branch.steps {
			if p.table != NAT && s.match.Protocol == UDP {
				if p.table != Filter || !b.refusesDNS() {
					continue
				}
				s.match.Family = IPv6
			}
			b.add(s.match, p.action(s.to), s.why)
		}
	}
}
