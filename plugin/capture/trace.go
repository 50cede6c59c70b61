// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"net/netip"
	"slices"
)

// Trace is the path of a Packet through a Ruleset.
type Trace struct {
	Packet Packet
	Hooks  []HookTrace

	// Verdict is Return for a packet that passes, Redirect, TProxy, Drop or Reject. Port
	// is that of Redirect and TProxy.
	Verdict Verdict
	Port    uint16

	// Decisive is the step that captured, dropped or exempted the packet; nil if it
	// passes because no rule captures it.
	Decisive *Step

	Zone uint16 // conntrack's; 0 is the one of all packets without a rule
}

// HookTrace is the path through one built-in chain of a table.
type HookTrace struct {
	Table Table
	Hook  Hook
	Steps []Step // empty if no rule matches
}

// Step is a rule that matches.
type Step struct {
	Table      Table
	Chain      string
	Number     int // of the rule in its chain, from 1
	Conditions []string
	Rule       Rule
}

// Trace evaluates the rules for a packet. What it sends over lo arrives there, and
// meets the rules for arriving packets, too.
func (rs Ruleset) Trace(p Packet) Trace {
	t := tracer{rules: rs, at: passage{Packet: p}, trace: Trace{Packet: p, Verdict: Return}}
	if !p.Inbound {
		t.traverse(Output)
		t.enterLoopback()
	}
	if p.Inbound || t.at.Interface == loopbackName {
		t.traverse(Prerouting)
	}
	return t.trace
}

const loopbackName = "lo"

// tracer holds the state of one Trace.
type tracer struct {
	rules Ruleset
	at    passage
	trace Trace
}

// traverse evaluates the chains of a hook. nat decides once for a connection: what
// has met OUTPUT does not meet nat's PREROUTING.
func (t *tracer) traverse(hook Hook) {
	t.at.hook = hook
	byPriority := func(a, b Chain) int { return cmp.Compare(a.Priority(), b.Priority()) }
	for _, chain := range slices.SortedStableFunc(slices.Values(t.rules.Chains), byPriority) {
		if chain.Hook != hook || t.trace.Verdict == Drop || t.trace.Verdict == Reject {
			continue
		}
		if chain.Table == NAT && hook == Prerouting && !t.at.Inbound {
			continue
		}
		t.trace.Hooks = append(t.trace.Hooks, HookTrace{Table: chain.Table, Hook: hook})
		t.evaluate(chain)
	}
}

// enterLoopback moves a redirected packet to the pod's own address.
func (t *tracer) enterLoopback() {
	if t.trace.Verdict != Redirect {
		return
	}
	own := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if t.at.family() == IPv6 {
		own = netip.IPv6Loopback()
	}
	t.at.To, t.at.Interface = netip.AddrPortFrom(own, t.trace.Port), loopbackName
}

// evaluate applies a chain and reports whether the packet leaves the table.
func (t *tracer) evaluate(chain Chain) (leaves bool) {
	for i, rule := range chain.Rules {
		conditions, holds := t.at.meets(rule.Match)
		if !holds {
			continue
		}
		step := Step{chain.Table, chain.Name, i + 1, conditions, rule}
		here := &t.trace.Hooks[len(t.trace.Hooks)-1]
		here.Steps = append(here.Steps, step)
		switch do := rule.Do; do.Verdict {
		case Return:
			if here.captures() && !step.defers() && t.trace.Verdict == Return {
				t.trace.Decisive = &step
			}
			return false
		case Goto:
			return t.evaluate(t.rules.chain(chain.Table, do.Chain))
		case Jump:
			if t.evaluate(t.rules.chain(chain.Table, do.Chain)) {
				return true
			}
		case Redirect, TProxy, Drop, Reject:
			t.trace.Verdict, t.trace.Port, t.trace.Decisive = do.Verdict, do.Port, &step
			return true
		case SetMark:
			t.at.Mark = do.Mark
		case SetConnMark:
			t.at.connMark = do.Mark
		case SetZone:
			if t.trace.Zone == 0 {
				t.trace.Zone = do.Zone
			}
		}
	}
	return false
}

// captures reports whether rules at this place can capture a packet.
func (h HookTrace) captures() bool {
	return h.Table == NAT || h.Table == Filter || h.Table == Mangle && h.Hook == Prerouting
}

// defers reports whether the rule leaves the decision to another table.
func (s Step) defers() bool {
	return s.Chain == chainSYN && (s.Rule.Match.Unconfirmed || s.Rule.Match.FromLo)
}
