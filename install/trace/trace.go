// SPDX-License-Identifier: Apache-2.0

// Package trace evaluates a Ruleset for a packet, and says why the packet is captured or not. It also
// says which outcomes the counters of a Ruleset count.
package trace

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Path is the path of a Packet through a Ruleset.
type Path struct {
	Packet Packet      `json:"packet"`
	Hooks  []HookTrace `json:"hooks"`

	// Verdict is Redirect, Translate, TProxy, Drop, Reject or, for a packet that passes, Return. Port is
	// the port of Redirect and TProxy.
	Verdict capture.Verdict `json:"verdict"`
	Port    uint16          `json:"port,omitempty"`

	// Decisive is the step that captured, dropped, reset or exempted the packet. It is nil if the packet
	// passes because no rule captures it.
	Decisive *Step `json:"decisive,omitempty"`

	Zone uint16 `json:"zone,omitempty"` // conntrack's zone; 0 if no rule assigns one

	NFTables bool `json:"nftables,omitempty"` // the rules are in one table of nftables, in which the chains have other names
}

// HookTrace is the path through one built-in chain of a table.
type HookTrace struct {
	Table capture.Table `json:"table"`
	Hook  capture.Hook  `json:"hook"`
	Steps []Step        `json:"steps,omitempty"` // empty if no rule matches
}

// Step is a rule that matches the packet.
type Step struct {
	Table      capture.Table  `json:"table"`
	Chain      string         `json:"chain"`
	Number     int            `json:"number"` // the rule's number in its chain, from 1
	Conditions []string       `json:"conditions,omitempty"`
	Do         capture.Action `json:"do"`
	Why        string         `json:"why"`
	Defers     bool           `json:"defers,omitempty"` // the rule leaves the decision to nat or, for a packet on lo, to OUTPUT
}

// Of evaluates the rules for a packet, except those of the hooks FORWARD and POSTROUTING. If the packet
// leaves by lo, also because nat changed its destination, Of then evaluates the rules for arriving
// packets.
func Of(rules capture.Ruleset, p Packet) Path {
	t := tracer{rules: rules, at: passage{Packet: p}, trace: Path{Packet: p, Verdict: capture.Return}}
	if !p.Inbound {
		t.traverse(capture.Output)
		t.enterLoopback()
	}
	if p.Inbound || t.at.Interface == loopbackName {
		t.traverse(capture.Prerouting)
		t.traverse(capture.Input)
	}
	return t.trace
}

const loopbackName = "lo"

type tracer struct {
	rules capture.Ruleset
	at    passage
	trace Path
}

// traverse evaluates the chains of a hook, in the order of their priorities. nat decides once for each
// connection, so a packet that has passed nat's OUTPUT skips nat's PREROUTING.
func (t *tracer) traverse(hook capture.Hook) {
	t.at.hook = hook
	byPriority := func(a, b capture.Chain) int { return cmp.Compare(a.Priority(), b.Priority()) }
	for _, chain := range slices.SortedStableFunc(slices.Values(t.rules.Chains), byPriority) {
		if chain.Hook != hook || t.trace.Verdict == capture.Drop || t.trace.Verdict == capture.Reject {
			continue
		}
		if chain.Table == capture.NAT && hook == capture.Prerouting && !t.at.Inbound {
			continue
		}
		t.trace.Hooks = append(t.trace.Hooks, HookTrace{Table: chain.Table, Hook: hook})
		t.evaluate(chain)
	}
}

// enterLoopback applies nat's decision to the packet's destination and interface. A redirected packet
// goes to 127.0.0.1 or ::1 over lo. A packet that was translated to a loopback address also goes over
// lo, and one that was translated to another address keeps its interface.
func (t *tracer) enterLoopback() {
	switch to := t.translation(); {
	case to.Addr().IsLoopback():
		t.at.To, t.at.Interface = to, loopbackName
		return
	case to.IsValid():
		t.at.To = to
		return
	case t.trace.Verdict != capture.Redirect:
		return
	}
	own := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if t.at.family() == capture.IPv6 {
		own = netip.IPv6Loopback()
	}
	t.at.To, t.at.Interface = netip.AddrPortFrom(own, t.trace.Port), loopbackName
}

// translation returns the destination to which the packet was translated, or the zero value if it was
// not translated.
func (t *tracer) translation() netip.AddrPort {
	if t.trace.Verdict != capture.Translate {
		return netip.AddrPort{}
	}
	to := t.trace.Decisive.Do.To
	return netip.AddrPortFrom(to.Addr(), cmp.Or(to.Port(), t.at.To.Port()))
}

// evaluate applies a chain to the packet, and reports whether a verdict has ended the packet's way
// through the table, so that the calling chain does not continue.
func (t *tracer) evaluate(chain capture.Chain) (leaves bool) {
	for i, rule := range chain.Rules {
		conditions, holds := t.at.meets(rule.Match)
		if !holds {
			continue
		}
		step := Step{chain.Table, chain.Name, i + 1, conditions, rule.Do, rule.Why, defers(chain, rule)}
		here := &t.trace.Hooks[len(t.trace.Hooks)-1]
		here.Steps = append(here.Steps, step)
		switch do := rule.Do; do.Verdict {
		case capture.Return:
			if here.captures() && !step.Defers && t.trace.Verdict == capture.Return {
				t.trace.Decisive = &step
			}
			return false
		case capture.Goto:
			return t.evaluate(t.rules.Chain(chain.Table, do.Chain))
		case capture.Jump:
			if t.evaluate(t.rules.Chain(chain.Table, do.Chain)) {
				return true
			}
		case capture.Redirect, capture.Translate, capture.TProxy, capture.Drop, capture.Reject:
			t.trace.Verdict, t.trace.Port, t.trace.Decisive = do.Verdict, do.Port, &step
			changesNothing := t.at.Inbound && t.at.To.Port() == do.Port // if To is the interface's first address
			t.at.translated = do.Verdict == capture.Redirect && !changesNothing || do.Verdict == capture.Translate
			t.at.connMark = cmp.Or(do.ConnMark, t.at.connMark)
			return true
		case capture.SetMark:
			t.at.Mark = do.Mark
		case capture.SetConnMark:
			t.at.connMark = do.Mark
		case capture.SetZone:
			if t.trace.Zone == 0 {
				t.trace.Zone = do.Zone
			}
		}
	}
	return false
}

// captures reports whether the rules of this table at this hook can decide whether the packet is
// captured or refused.
func (h HookTrace) captures() bool {
	return h.Table == capture.NAT || h.Table == capture.Filter || h.Table == capture.Mangle && h.Hook == capture.Prerouting
}

func defers(chain capture.Chain, rule capture.Rule) bool {
	return chain.Name == capture.ChainSYN && (rule.Match.Unconfirmed || rule.Match.FromLo)
}
