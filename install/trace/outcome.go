// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Outcome is the decision of the rules about a connection, and its reason.
type Outcome struct{ Decision, Reason string }

// Outcomes returns every outcome that a Meter can have. The decision "own" is for connections over
// loopback, and for those of the proxy. With the decisions "refused" and "fenced", meters count packets,
// because the rules prevent these connections.
func Outcomes() (all []Outcome) {
	for _, of := range [][]string{
		{"captured", "inbound", "outbound", "dns"},
		{"exempt", "interface", "inbound_port", "outbound_port", "range", "client", "group", "user", "not_included", "ipv6", "other"},
		{"refused", "inbound", "outbound"},
		{"fenced", "inbound", "outbound", "icmp", "forwarded"},
		{"own", "loopback", "proxy"},
	} {
		for _, reason := range of[1:] {
			all = append(all, Outcome{of[0], reason})
		}
	}
	return all
}

// exemptions maps the name of a list in a rule, without its number and family, to the reason of the
// exemption.
var exemptions = map[string]string{
	"exclude_interfaces": "interface", "reroute_interfaces": "not_included", "exclude_owner_groups": "group",
	"exclude_inbound_ports": "inbound_port", "exclude_outbound_ports": "outbound_port",
	"exclude_outbound_ranges": "range", "exclude_inbound_ranges": "client",
	"exempt_users": "user", "exempt_ports": "outbound_port", "exempt_ranges": "range",
}

// Meter says that the counter of a rule contributes to the count of an outcome. If Negative is set, the
// counter is subtracted, because another meter of this outcome also counts these connections.
type Meter struct {
	Chain    string // the chain's name in nftables
	Rule     int    // the rule's index in the chain
	Of       Outcome
	Negative bool
}

// Meters returns the meters of the rules. The table nat decides once for each connection, so its
// counters count connections. No rule counts the connections that reach the end of a chain. Their
// number is that of the connections that rules sent to the chain, minus those that a rule of the chain
// matched.
func Meters(rs capture.Ruleset) (meters []Meter) {
	for _, chain := range rs.Chains {
		for i, r := range chain.Rules {
			add := func(of Outcome, negative bool) {
				if of != (Outcome{}) {
					meters = append(meters, Meter{chain.NFTName(), i, of, negative})
				}
			}
			add(outcome(rs, chain, r), false)
			if chain.Table == capture.NAT {
				add(unmatched(rs, r.Do.Chain), false)
				add(unmatched(rs, chain.Name), true)
			}
		}
	}
	return meters
}

// unmatched returns the outcome of connections that reach the end of a chain of nat, or the zero value
// if another counter counts them. For a fenced pod, it also returns the zero value, except for the
// proxy's chain, because the fence refuses these connections or has an exception for them.
func unmatched(rs capture.Ruleset, chain string) Outcome {
	switch chain {
	case "ISTIO_PROXY":
		return Outcome{"own", "proxy"}
	case "ISTIO_INBOUND", "ISTIO_OUTPUT", "ISTIO_OWNER_GROUPS", "ISTIO_OUTPUT_DNS":
		if !rs.HasFence() {
			return Outcome{"exempt", "not_included"}
		}
	}
	return Outcome{}
}

// outcome returns the outcome of the connections about which a rule decides, or the zero value if the
// rule decides about none.
func outcome(rs capture.Ruleset, chain capture.Chain, r capture.Rule) Outcome {
	switch {
	case r.Do.Chain == capture.ChainFence || r.Do.Chain == capture.ChainFenceReset:
		return Outcome{"fenced", fencedPart(chain)}
	case chain.Name == capture.ChainRefuse && chain.Table == capture.Mangle || chain.Name == capture.ChainRefuseInbound:
		return Outcome{"refused", "inbound"}
	case chain.Name == capture.ChainRefuse:
		return Outcome{"refused", "outbound"}
	case chain.Table != capture.NAT:
		return Outcome{}
	case chain.Name == "ISTIO_IN_REDIRECT" || chain.Name == "ISTIO_IN_TPROXY":
		return Outcome{"captured", "inbound"}
	case chain.Name == "ISTIO_REDIRECT":
		return Outcome{"captured", "outbound"}
	case r.Do.Verdict == capture.Redirect || r.Do.Verdict == capture.Translate,
		!r.Match.Dst.IsZero() && r.Match.Dst.Name == "" && !r.Match.DstPort.IsZero(): // a query for the server that the mesh uses
		return Outcome{"captured", "dns"}
	case rs.HasFence() && r.Match.In.Name == capture.ListReroute: // the fence decides about these
		return Outcome{}
	case r.Do.Verdict != capture.Return || chain.Hook != "" && (rs.IPv6 == capture.Refused || rs.HasFence()): // filter decides about these
		return Outcome{}
	}
	return exemptionBy(r.Match)
}

// exemptionBy returns the outcome of connections that a rule of nat with this match exempts.
func exemptionBy(m capture.Match) Outcome {
	for _, list := range []string{m.In.Name, m.Out.Name, m.UID.Name, m.DstPort.Name, m.Src.Name, m.Dst.Name, m.GID.Name} {
		list = strings.TrimSuffix(strings.TrimSuffix(list, "_"+string(capture.IPv4)), "_"+string(capture.IPv6))
		if reason, known := exemptions[strings.TrimRight(list, "_0123456789")]; known {
			return Outcome{"exempt", reason}
		}
	}
	switch {
	case m.UIDRange != (capture.IDRange{}):
		return Outcome{"exempt", "user"}
	case m.ToLo, len(m.Dst.Values) == 1 && m.Dst.Values[0].Addr().IsLoopback():
		return Outcome{"own", "loopback"}
	case !m.UID.IsZero() || !m.GID.IsZero() || !m.DstPort.IsZero(): // the proxy's ids, and the port of its tunnel
		return Outcome{"own", "proxy"}
	case m.Family == capture.IPv6:
		return Outcome{"exempt", "ipv6"}
	}
	return Outcome{"exempt", "other"}
}

// fencedPart returns the reason of the outcome "fenced" for packets that a rule of this chain sends to
// ChainFence or ChainFenceReset.
func fencedPart(chain capture.Chain) string {
	switch {
	case chain.Hook == capture.Forward:
		return "forwarded"
	case chain.Name == "ISTIO_FENCE_ICMP":
		return "icmp"
	case chain.Name == "ISTIO_FENCE_IN" || chain.Name == "ISTIO_FENCE_INPUT":
		return "inbound"
	}
	return "outbound"
}
