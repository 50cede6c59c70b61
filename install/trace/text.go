// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Text returns the trace in words, with one fact on each line, followed by its own assumptions and the
// caller's.
func (t Path) Text(assumptions ...string) string {
	var text strings.Builder
	column := func(name string, lines ...string) {
		for _, line := range lines {
			fmt.Fprintf(&text, "%-12s %s\n", name, line)
			name = ""
		}
	}
	column("packet", t.Packet.String())
	column("verdict", t.verdictWords())
	column("decided by", t.decisiveWords())
	column("path", t.pathWords()...)
	if t.Zone != 0 {
		column("zone", fmt.Sprintf("%d of conntrack: the first rule that assigns one counts", t.Zone))
	}
	column("assuming", append(t.assumptions(), assumptions...)...)
	return text.String()
}

func (p Packet) String() string {
	var words strings.Builder
	words.WriteString(protocolWords(p.Protocol))
	if echoRequest[p.Protocol] != 0 {
		words.WriteString(" echo request")
	}
	fmt.Fprintf(&words, " from %s to %s, ", addressWords(p.From), addressWords(p.To))
	switch {
	case p.Inbound:
		fmt.Fprintf(&words, "arriving by %s", p.Interface)
	case p.Owner == nil:
		fmt.Fprintf(&words, "leaving by %s", p.Interface)
	default:
		fmt.Fprintf(&words, "sent by uid %d and gid %d, leaving by %s", p.Owner.UID, p.Owner.GID, p.Interface)
	}
	if p.Mark != 0 {
		fmt.Fprintf(&words, ", with mark %d", p.Mark)
	}
	return words.String()
}

func addressWords(a netip.AddrPort) string {
	switch {
	case !a.Addr().IsValid():
		return "any address"
	case a.Port() == 0:
		return a.Addr().String()
	}
	return a.String()
}

func (t Path) verdictWords() string {
	switch t.Verdict {
	case capture.Redirect:
		return fmt.Sprintf("redirected to port %d", t.Port)
	case capture.Translate:
		return "translated to " + t.Decisive.Do.Target()
	case capture.TProxy:
		return fmt.Sprintf("delivered by TPROXY to port %d, with its addresses", t.Port)
	case capture.Drop:
		// TCP retries the SYN, and ICMPv6 sockets report no error.
		if t.Hooks[len(t.Hooks)-1].Hook == capture.Output && t.Packet.Protocol != capture.TCP && t.Packet.Protocol != capture.ICMPv6 {
			return "dropped, and the process that sends it gets the error EPERM"
		}
		return "dropped"
	case capture.Reject:
		return "refused by a reset"
	}
	return "passes, not captured"
}

func (t Path) decisiveWords() string {
	if t.Decisive == nil {
		return "no rule: " + t.endWords()
	}
	return fmt.Sprintf("rule %d of %s: %s", t.Decisive.Number, t.chainWords(t.Decisive.Table, t.Decisive.Chain), t.Decisive.Why)
}

// chainWords returns a chain's name as the program nft, or iptables, prints it.
func (t Path) chainWords(table capture.Table, chain string) string {
	if t.NFTables {
		return "chain " + capture.NFTChain(table, chain) + " in table inet " + capture.TableName
	}
	return fmt.Sprintf("chain %s in table %s", chain, table)
}

// endWords names the chain whose end a packet reaches if no rule decides about the packet.
func (t Path) endWords() string {
	for _, hook := range slices.Backward(t.Hooks) {
		if len(hook.Steps) == 0 || !hook.captures() {
			continue
		}
		last := hook.Steps[len(hook.Steps)-1]
		if last.Defers {
			continue
		}
		return "it reaches the end of " + t.chainWords(last.Table, cmp.Or(last.Do.Chain, last.Chain))
	}
	return "none matches it"
}

func (t Path) pathWords() (lines []string) {
	for _, hook := range t.Hooks {
		if len(hook.Steps) == 0 {
			lines = append(lines, fmt.Sprintf("%s %s: no rule matches", hook.Table, hook.Hook))
		}
		for _, step := range hook.Steps {
			lines = append(lines, t.stepWords(step))
		}
	}
	if len(lines) == 0 {
		return []string{"the pod has no rules for inbound packets"}
	}
	return lines
}

func (t Path) stepWords(s Step) string {
	conditions := cmp.Or(strings.Join(s.Conditions, ", "), "any packet")
	chain := string(s.Table) + " " + s.Chain
	if t.NFTables {
		chain = capture.NFTChain(s.Table, s.Chain)
		if s.Do.Chain != "" {
			s.Do.Chain = capture.NFTChain(s.Table, s.Do.Chain)
		}
	}
	return fmt.Sprintf("%s: rule %d (%s) %s: %s", chain, s.Number, conditions, words(s.Do), s.Why)
}

func words(do capture.Action) string {
	switch do.Verdict {
	case capture.Jump:
		return "jumps to " + do.Chain
	case capture.Goto:
		return "goes to " + do.Chain + ", and not back"
	case capture.Redirect:
		return fmt.Sprintf("redirects to port %d", do.Port)
	case capture.Translate:
		return "translates to " + do.Target()
	case capture.TProxy:
		return fmt.Sprintf("delivers to port %d with mark %d", do.Port, do.Mark)
	case capture.SetMark:
		return fmt.Sprintf("sets mark %d", do.Mark)
	case capture.SetConnMark:
		return fmt.Sprintf("sets connection mark %d", do.Mark)
	case capture.SetZone:
		return fmt.Sprintf("assigns conntrack zone %d", do.Zone)
	case capture.Drop:
		return "drops"
	case capture.Reject:
		return "resets"
	}
	return "returns"
}

// assumptions returns the assumptions on which the verdict depends, about conntrack, routing, the packet
// and listening processes.
func (t Path) assumptions() []string {
	lines := []string{
		"conntrack has no entry with these addresses and ports: with an uncaptured entry, the rules refuse a SYN that nat would redirect",
	}
	if echoRequest[t.Packet.Protocol] != 0 {
		lines = []string{"conntrack has no entry with these addresses"}
	}
	if !t.Packet.Inbound {
		lines = append(lines, "routing sends the packet by "+t.Packet.Interface)
	}
	if !t.Packet.From.Addr().IsValid() {
		lines = append(lines, "no rule names the packet's source address")
	}
	if !t.Packet.Inbound && t.Packet.Owner == nil {
		lines = append(lines, "no rule names the sender's user or group")
	}
	switch t.Verdict {
	case capture.Redirect:
		lines = append(lines, fmt.Sprintf("a process listens at port %d: without one, the connection is refused", t.Port))
	case capture.TProxy:
		lines = append(lines,
			fmt.Sprintf("a process listens at port %d for connections to any address: without one, the packet is dropped", t.Port))
	}
	return lines
}
