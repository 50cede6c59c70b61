// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
)

// packet is the first packet of a connection, or a later one if established is set.
type packet struct {
	hook     Hook
	in, out  string
	src, dst netip.Addr
	protocol Protocol
	from     uint16 // source port
	port     uint16 // destination port
	uid, gid uint32
	socket   bool // whether uid and gid are known

	mark, connMark       uint32
	established, invalid bool
	begins               bool // a SYN
}

func (p packet) String() string {
	return fmt.Sprintf("%s in %q out %q, %s to %s, %s port %d to %d, socket %v of %d:%d, mark %d, connection's mark %d, established %v, invalid %v, begins %v",
		p.hook, p.in, p.out, p.src, p.dst, p.protocol, p.from, p.port, p.socket, p.uid, p.gid, p.mark, p.connMark, p.established, p.invalid, p.begins)
}

// Every value below matches one of the rules, or is next to a value that does.
var (
	packetInterfaces = []string{"lo", "eth0", "eth1", "eth2"}
	packetPorts      = []uint16{0, 53, 53, 80, 443, 3306, 8080, 15001, 15006, 15008, 15020, 15021, 15090}
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
		protocol: pick(r, []Protocol{TCP, TCP, UDP}), from: pick(r, []uint16{53, 15053, 40000}), port: pick(r, packetPorts),
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
	p.established = !p.invalid && p.protocol == TCP && r.IntN(3) == 0
	p.begins = !p.established && p.protocol == TCP && r.IntN(2) == 0
	if p.hook == Output {
		p.connMark = pick(r, []uint32{0, 0, markProxy})
	}
	if p.hook == Output || p.in == "lo" {
		p.mark = pick(r, []uint32{0, 0, markProxy, markOwnPod})
	}
	return p
}

// traversal is a packet in a hook, and what the rules have done to it.
type traversal struct {
	packet
	zone uint16
	end  string // the final verdict, "" for none yet
}

// setZone keeps the first zone, as the kernel does.
func (j *traversal) setZone(zone uint16) {
	if j.zone == 0 {
		j.zone = zone
	}
}

// result returns all that the rules changed, for comparison.
func (j *traversal) result() string {
	if j.end == "" {
		j.end = untouched
	}
	return fmt.Sprintf("%s, zone %d, mark %d, connection's mark %d", j.end, j.zone, j.mark, j.connMark)
}

// tables returns the tables that a packet traverses. Only the first packet of a
// connection traverses nat, and no packet that conntrack calls invalid.
func (p packet) tables() []Table {
	if p.invalid || p.established {
		return []Table{Raw, Mangle}
	}
	return []Table{Raw, Mangle, NAT}
}

const (
	untouched = "untouched"
	dropped   = "dropped"
)

func redirected(port uint16) string { return fmt.Sprintf("redirected to %d", port) }

func tproxied(port uint16) string { return fmt.Sprintf("by TPROXY to %d", port) }

// result returns what the rules do to a packet.
func (rs Ruleset) result(p packet) string {
	j := &traversal{packet: p}
	for _, table := range p.tables() {
		for _, chain := range rs.Chains {
			if j.end == "" && chain.Table == table && chain.Hook == p.hook {
				rs.walk(chain, j)
			}
		}
	}
	return j.result()
}

// walk reports whether the packet leaves the table before the end of the chain.
func (rs Ruleset) walk(chain Chain, j *traversal) bool {
	for _, rule := range chain.Rules {
		if !rule.Match.holds(j.packet) {
			continue
		}
		switch do := rule.Do; do.Verdict {
		case Return:
			return false
		case Drop:
			j.end = dropped
			return true
		case Redirect:
			j.end = redirected(do.Port)
			return true
		case TProxy:
			j.mark, j.end = do.Mark, tproxied(do.Port)
			return true
		case SetMark:
			j.mark = do.Mark
		case SetConnMark:
			j.connMark = do.Mark
		case SetZone:
			j.setZone(do.Zone)
		case Jump, Goto:
			target := slices.IndexFunc(rs.Chains, func(c Chain) bool { return c.Table == chain.Table && c.Name == do.Chain })
			if rs.walk(rs.Chains[target], j) {
				return true
			}
			if do.Verdict == Goto {
				return false
			}
		default:
			panic("unknown verdict: " + do.Verdict)
		}
	}
	return false
}

func (m Match) holds(p packet) bool {
	within := func(list List[netip.Prefix], address netip.Addr) bool {
		return len(list.Values) == 0 || slices.ContainsFunc(list.Values, func(r netip.Prefix) bool { return r.Contains(address) })
	}
	return (m.Family == "" || (m.Family == IPv4) == p.dst.Is4()) &&
		(m.Protocol == "" || m.Protocol == p.protocol) &&
		holdsOne(m.In, p.in) && holdsOne(m.Out, p.out) && holdsOne(m.SrcPort, p.from) && holdsOne(m.DstPort, p.port) &&
		within(m.Src, p.src) && within(m.Dst, p.dst) &&
		(len(m.UID.Values) == 0 || p.socket && holdsOne(m.UID, p.uid)) &&
		(len(m.GID.Values) == 0 || p.socket && holdsOne(m.GID, p.gid)) &&
		(m.Mark == 0 || m.Mark == p.mark) && (m.ExceptMark == 0 || m.ExceptMark != p.mark) &&
		(m.ConnMark == 0 || m.ConnMark == p.connMark) &&
		(!m.Established || p.established) && (!m.Begins || p.begins) && (!m.Invalid || p.invalid)
}

func holdsOne[T comparable](list List[T], value T) bool {
	return len(list.Values) == 0 || slices.Contains(list.Values, value)
}
