// SPDX-License-Identifier: Apache-2.0

package search

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// datagram is how a process sends one packet that is not TCP's.
type datagram struct {
	protocol int // UDP's by default
	socket   int // its type
	dial
	port     uint16                                                    // outside, instead of that of the sequence
	podPort  uint16                                                    // of the pod, instead of that of the sequence
	group    func(f int) netip.Addr                                    // the destination
	as       func(r *run, local, remote netip.AddrPort) netip.AddrPort // the source
	itself   bool                                                      // to the pod
	size     int
	receives bool // and sends nothing
}

var (
	allKinds      = append(slices.Clone(kinds), datagramKinds...)
	proxies       = []actor{proxy}
	multicast     = both("224.0.0.251", "ff02::fb")
	broadcast     = both("255.255.255.255", "ff02::1")
	linkBroadcast = both("10.77.0.255", "ff02::1")
	stranger      = both("10.77.0.99", "fd77::99")
)

// datagramKinds are what actors do in pods with a fence, in addition.
var datagramKinds = []*kind{
	{"sends UDP", apps, sends(datagram{})},
	{"sends UDP on eth0", apps, sends(datagram{dial: dial{device: "eth0"}})},
	{"sends UDP on net1", apps, sends(datagram{dial: dial{device: "net1"}})},
	{"sends UDP on lo", apps, sends(datagram{dial: dial{device: "lo"}})},
	{"sends UDP by a source route", apps, sends(datagram{dial: dial{sourceRoute: true}})},
	{"sends UDP as a stranger", apps, sends(datagram{dial: dial{freebind: true}, as: asStranger})},
	{"sends UDP to the pod as the peer", apps, sends(datagram{dial: dial{freebind: true}, as: asPeer, itself: true})},
	{"sends UDP to the pod as the peer, on eth0", apps, sends(datagram{dial: dial{freebind: true, device: "eth0"}, as: asPeer, itself: true})},
	{"sends a large datagram", apps, sends(datagram{size: 4000})},
	{"sends UDP-Lite", apps, sends(datagram{protocol: unix.IPPROTO_UDPLITE})},
	{"begins QUIC", apps, sends(datagram{port: quicPort, size: 1200})},
	{"sends a query", apps, sends(datagram{port: 53})},
	{"sends a query as the peer", apps, sends(datagram{port: 53, dial: dial{freebind: true}, as: asPeer})},
	{"sends a query on eth0", apps, sends(datagram{port: 53, dial: dial{device: "eth0"}})},
	{"sends a query to localhost on eth0", apps, sends(datagram{port: 53, dial: dial{device: "eth0"}, group: at(localhost)})},
	{"sends where it may", apps, sends(datagram{port: outPort})},
	{"sends much where it may", apps, sends(datagram{port: outPort, size: 4000})},
	{"sends from where it is served", apps, sends(datagram{podPort: inPort})},
	{"pings", apps, sends(datagram{protocol: unix.IPPROTO_ICMP})},
	{"pings on lo", apps, sends(datagram{protocol: unix.IPPROTO_ICMP, dial: dial{device: "lo"}})},
	{"multicasts", apps, sends(datagram{group: at(multicast), dial: dial{device: "eth0"}})},
	{"broadcasts", apps, sends(datagram{group: at(broadcast), dial: dial{device: "eth0"}})},
	{"broadcasts to the link", apps, sends(datagram{group: at(linkBroadcast), dial: dial{device: "eth0"}})},
	{"sends by other protocols", apps, func(r *run, a action) (err error) {
		for _, d := range []datagram{
			{protocol: unix.IPPROTO_SCTP, socket: unix.SOCK_STREAM},
			{protocol: unix.IPPROTO_DCCP, socket: unix.SOCK_DCCP},
			{protocol: unix.IPPROTO_L2TP},
			{protocol: unix.IPPROTO_GRE, socket: unix.SOCK_RAW},
			{protocol: unix.IPPROTO_IPIP, socket: unix.SOCK_RAW},
		} {
			err = errors.Join(err, sends(d)(r, a))
		}
		return err
	}},
	{"waits for UDP", apps, sends(datagram{receives: true})},
	{"waits for UDP-Lite", apps, sends(datagram{receives: true, protocol: unix.IPPROTO_UDPLITE})},
	{"waits for pings", apps, sends(datagram{receives: true, protocol: unix.IPPROTO_ICMP})},
	{"joins a group", apps, sends(datagram{receives: true, as: asGroup})},

	{"sends UDP out", proxies, sends(datagram{})},
	{"sends UDP-Lite out", proxies, sends(datagram{protocol: unix.IPPROTO_UDPLITE})},
	{"begins QUIC out", proxies, sends(datagram{port: quicPort, size: 1200})},
	{"pings out", proxies, sends(datagram{protocol: unix.IPPROTO_ICMP})},

	{"sends UDP in", peers, sends(datagram{})},
	{"sends UDP in as the other peer", peers, sends(datagram{dial: dial{transparent: true}, as: asOther})},
	{"sends UDP in as localhost", peers, sends(datagram{dial: dial{transparent: true}, as: asLocalhost})},
	{"sends UDP in as the pod", peers, sends(datagram{dial: dial{transparent: true}, as: asPod})},
	{"sends UDP-Lite in", peers, sends(datagram{protocol: unix.IPPROTO_UDPLITE})},
	{"sends a large datagram in", peers, sends(datagram{size: 4000})},
	{"answers QUIC", peers, sends(datagram{port: quicPort})},
	{"answers a query", peers, sends(datagram{port: 53})},
	{"sends where it is served", peers, sends(datagram{podPort: inPort})},
	{"multicasts in", peers, sends(datagram{group: at(multicast), dial: dial{device: "eth0"}})},
	{"broadcasts in", peers, sends(datagram{group: at(broadcast), dial: dial{device: "eth0"}})},
	{"pings in", peers, func(r *run, a action) error { return r.echo(a, false) }},
	{"answers a ping", peers, func(r *run, a action) error { return r.echo(a, true) }},
	{"sends an ICMP error about UDP", peers, func(r *run, a action) error {
		a.at.remote = int(a.by - peer)
		local, remote := r.ends(a.at)
		return r.processes[a.by].Do(lab.Unreachable{From: remote.Addr(), Of: lab.Segment{From: local, To: remote}, Protocol: unix.IPPROTO_UDP}.Send)
	}},
	{"sees datagrams forgotten by conntrack", []actor{app}, func(r *run, a action) error { return r.expireDatagrams() }},
}

func at(group [2]netip.Addr) func(int) netip.Addr { return func(f int) netip.Addr { return group[f] } }

func asStranger(r *run, local, _ netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(stranger[r.family], local.Port())
}

func asPeer(_ *run, _, remote netip.AddrPort) netip.AddrPort { return remote }

func asGroup(r *run, local, _ netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(both("0.0.0.0", "::")[r.family], local.Port())
}

func asOther(r *run, _, remote netip.AddrPort) netip.AddrPort {
	other := peerAddresses[0][r.family]
	if remote.Addr() == other {
		other = peerAddresses[1][r.family]
	}
	return netip.AddrPortFrom(other, remote.Port())
}

func asLocalhost(r *run, _, remote netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(localhost[r.family], remote.Port())
}

func asPod(_ *run, local, remote netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(local.Addr(), remote.Port())
}

// payload shows who sent it.
func payload(by actor) byte {
	return map[actor]byte{app: 'a', app2: 'a', proxy: 'p', peer: 'o', peer2: 'o'}[by]
}

// sends sends a datagram from a new socket, which stays.
func sends(d datagram) func(*run, action) error {
	return func(r *run, a action) error {
		d := d
		if a.by >= peer {
			a.at.remote = int(a.by - peer)
		}
		if d.port != 0 || d.podPort != 0 || d.protocol == unix.IPPROTO_ICMP {
			a.at.localPort, a.at.remotePort = own, own // an own port tells the flow from that of other sequences
		}
		local, remote := r.ends(a.at)
		if d.port != 0 {
			remote = netip.AddrPortFrom(remote.Addr(), d.port)
		}
		if d.podPort != 0 {
			local = netip.AddrPortFrom(local.Addr(), d.podPort)
		}
		d.from, d.to, d.reuse = local, remote, a.reuse
		if a.by >= peer {
			d.from, d.to, d.reuse = remote, local, unix.SO_REUSEADDR
		}
		if d.itself {
			d.to = local
		}
		if d.as != nil {
			d.from = d.as(r, local, remote)
		}
		if d.group != nil {
			d.to = netip.AddrPortFrom(d.group(r.family), d.to.Port())
		}
		return r.processes[a.by].Do(func() error {
			fd, err := d.open()
			if fd >= 0 {
				r.sockets[a.by] = append(r.sockets[a.by], fd)
				if !d.receives {
					r.delivers(a.by, d)
					err = d.send(fd, payload(a.by))
				}
			}
			return err
		})
	}
}

// open returns a bound socket, or -1.
func (d datagram) open() (int, error) {
	domain, protocol, kind := unix.AF_INET6, max(d.protocol, unix.IPPROTO_IP), max(d.socket, unix.SOCK_DGRAM)
	if d.socket == unix.SOCK_STREAM {
		kind = d.socket
	}
	if d.from.Addr().Is4() {
		domain = unix.AF_INET
	} else if protocol == unix.IPPROTO_ICMP {
		protocol = unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	if d.receives && d.as != nil {
		joinGroup(fd, domain)
	}
	if err := d.prepare(fd); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func joinGroup(fd, domain int) {
	if domain == unix.AF_INET {
		_ = unix.SetsockoptIPMreq(fd, unix.SOL_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreq{Multiaddr: multicast[0].As4(), Interface: podAddresses[0][0].As4()})
		return
	}
	for link := range 4 {
		_ = unix.SetsockoptIPv6Mreq(fd, unix.SOL_IPV6, unix.IPV6_ADD_MEMBERSHIP, &unix.IPv6Mreq{Multiaddr: multicast[1].As16(), Interface: uint32(link)})
	}
}

func (d datagram) send(fd int, what byte) error {
	data := bytes.Repeat([]byte{what}, max(d.size, 1))
	to := d.to
	if d.protocol == unix.IPPROTO_ICMP {
		kind := byte(8)
		if !to.Addr().Is4() {
			kind = 128
		}
		data, to = append([]byte{kind, 0, 0, 0, 0, 0, 0, 1}, data...), netip.AddrPortFrom(to.Addr(), 0)
	}
	if d.socket == unix.SOCK_STREAM || d.socket == unix.SOCK_DCCP {
		return unix.Connect(fd, lab.Sockaddr(to))
	}
	return unix.Sendto(fd, data, unix.MSG_NOSIGNAL, lab.Sockaddr(to))
}

func (r *run) echo(a action, reply bool) error {
	a.at.remote, a.at.localPort = int(a.by-peer), own
	local, remote := r.ends(a.at)
	return r.processes[a.by].Do(lab.Echo{From: remote.Addr(), To: local.Addr(), Reply: reply, ID: local.Port(), Data: "o"}.Send)
}

// expireDatagrams ends the entries of the sequence's datagrams, as their time-out does.
func (r *run) expireDatagrams() error {
	return r.root.Do(func() error {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, []netlink.InetFamily{unix.AF_INET, unix.AF_INET6}[r.family], ownDatagrams(r.own))
		return err
	})
}

type ownDatagrams uint16

func (own ownDatagrams) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	return flow.Forward.Protocol != unix.IPPROTO_TCP && (flow.Forward.SrcPort == uint16(own) || flow.Forward.DstPort == uint16(own) || flow.Forward.SrcPort == 0)
}
