// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// packet is the first one of a connection, as netfilter meets it.
type packet struct {
	hook     Hook
	in, out  string
	src, dst netip.Addr
	protocol Protocol
	port     uint16
	uid, gid uint32
	socket   bool // without one, a packet has no owner
	invalid  bool
}

const udp Protocol = "udp"

func (p packet) String() string {
	return fmt.Sprintf("%s in %q out %q, %s to %s, %s port %d, socket %v of %d:%d, invalid %v",
		p.hook, p.in, p.out, p.src, p.dst, p.protocol, p.port, p.socket, p.uid, p.gid, p.invalid)
}

// Every value below decides something in one of the rules, or lies just
// beside one that does.
var (
	packetInterfaces = []string{"lo", "eth0", "eth1", "eth2"}
	packetPorts      = []uint16{0, 80, 443, 3306, 8080, 15001, 15006, 15008, 15020, 15021, 15090}
	packetOwners     = []uint32{0, 1, 202, 1000, 1337}
	packetSources    = addresses("127.0.0.1", "127.0.0.6", "10.1.2.3", "::1", "::6", "2001:db8::3")
	packetTargets    = addresses("127.0.0.1", "127.0.0.2", "127.1.2.3", "10.1.2.3", "10.2.0.1", "11.0.0.1", "203.0.113.9",
		"::1", "::2", "2001:db8::3", "2001:db8:1::3", "fd00::1")
)

func addresses(texts ...string) []netip.Addr {
	var parsed []netip.Addr
	for _, text := range texts {
		parsed = append(parsed, netip.MustParseAddr(text))
	}
	return parsed
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func randomPacket(r *rand.Rand) packet {
	p := packet{
		hook: pick(r, []Hook{Prerouting, Output, Output}), src: pick(r, packetSources), dst: pick(r, packetTargets),
		protocol: pick(r, []Protocol{TCP, TCP, TCP, udp}), port: pick(r, packetPorts),
	}
	for p.src.Is4() != p.dst.Is4() {
		p.src = pick(r, packetSources)
	}
	if p.hook == Prerouting {
		p.in, p.invalid = pick(r, packetInterfaces), r.IntN(8) == 0
	} else {
		p.out, p.socket = pick(r, packetInterfaces), r.IntN(8) > 0
	}
	if p.socket {
		p.uid, p.gid = pick(r, packetOwners), pick(r, packetOwners)
	}
	return p
}

const (
	untouched = "untouched"
	dropped   = "dropped"
)

func redirected(port uint16) string { return fmt.Sprintf("redirected to %d", port) }

// fate is what becomes of a packet under the rules.
func (rs Ruleset) fate(p packet) string {
	for _, table := range []Table{Mangle, NAT} {
		if table == NAT && p.invalid {
			continue // conntrack keeps such packets out of nat
		}
		for _, chain := range rs.Chains {
			if chain.Table == table && chain.Hook == p.hook {
				if fate := rs.walk(chain, p); fate != "" {
					return fate
				}
			}
		}
	}
	return untouched
}

// walk gives "" where the packet comes to the end of the chain, or leaves it.
func (rs Ruleset) walk(chain Chain, p packet) string {
	for _, rule := range chain.Rules {
		if !rule.Match.holds(p) {
			continue
		}
		switch rule.Do.Verdict {
		case Return:
			return ""
		case Drop:
			return dropped
		case Redirect:
			return redirected(rule.Do.Port)
		}
		target := slices.IndexFunc(rs.Chains, func(c Chain) bool { return c.Table == chain.Table && c.Name == rule.Do.Chain })
		if fate := rs.walk(rs.Chains[target], p); fate != "" || rule.Do.Verdict == Goto {
			return fate
		}
	}
	return ""
}

func (m Match) holds(p packet) bool {
	within := func(list List[netip.Prefix], address netip.Addr) bool {
		return len(list.Values) == 0 || slices.ContainsFunc(list.Values, func(r netip.Prefix) bool { return r.Contains(address) })
	}
	return (m.Family == "" || (m.Family == IPv4) == p.dst.Is4()) &&
		(m.Protocol == "" || m.Protocol == p.protocol) &&
		holdsOne(m.In, p.in) && holdsOne(m.Out, p.out) && holdsOne(m.DstPort, p.port) &&
		within(m.Src, p.src) && within(m.Dst, p.dst) &&
		(len(m.UID.Values) == 0 || p.socket && holdsOne(m.UID, p.uid)) &&
		(len(m.GID.Values) == 0 || p.socket && holdsOne(m.GID, p.gid)) &&
		(!m.Invalid || p.invalid)
}

func holdsOne[T comparable](list List[T], value T) bool {
	return len(list.Values) == 0 || slices.Contains(list.Values, value)
}
