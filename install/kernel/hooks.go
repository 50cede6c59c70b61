// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// hooksInFront describes other programs' chains and legacy tables that a packet meets at or before the
// priority that lastOfOurs returns, and chains that route the packet again, in the calling thread's
// namespace. It does not evaluate their rules, and omits empty chains that accept all packets, and tables
// of iptables that also contain our rules. Errors: TooLarge, ErrChanging.
func hooksInFront(ctx context.Context, p trace.Packet) ([]string, error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	all, err := nfnetlink.ListChains(r)
	if err != nil {
		return nil, err
	}
	bases, err := nfnetlink.List(r,
		nfnetlink.Listing{Request: unix.NFT_MSG_GETCHAIN, What: "chains", Limit: nfnetlink.MaxChains}, parseBaseChain)
	if err != nil {
		return nil, err
	}
	last := lastOfOurs(bases)
	var found []string
	for _, base := range bases {
		if base.isOurs() || !base.isMetBy(p, last) || hasMarker(all, base.ChainName) {
			continue
		}
		decides, err := base.decides(r)
		if err != nil {
			return nil, err
		}
		if decides {
			found = append(found,
				fmt.Sprintf("chain %q of %s table %q, at %s", base.Name, familyNames[base.Family], base.Table, base.hook.text(base.Family)))
		}
	}
	legacy, err := legacyInFront(p, last)
	return append(found, legacy...), err
}

// isMetBy reports whether a packet meets the chain, and isInFront is true for the chain's hook. A packet
// on lo also meets the hooks for arriving packets.
func (c baseChain) isMetBy(p trace.Packet, last int32) bool {
	isIPv4 := p.To.Addr().Is4()
	if !c.hook.isInFront(c.Family, last) || c.Family == unix.NFPROTO_IPV4 && !isIPv4 || c.Family == unix.NFPROTO_IPV6 && isIPv4 {
		return false
	}
	if c.Family != unix.NFPROTO_NETDEV && c.hook.number == unix.NF_INET_LOCAL_OUT {
		return !p.Inbound
	}
	return p.Inbound || p.Interface == "lo"
}

// hasMarker reports whether a chain's table contains the marker chain, and so our rules of iptables-nft.
func hasMarker(chains []nfnetlink.ChainName, of nfnetlink.ChainName) bool {
	return slices.Contains(chains, nfnetlink.ChainName{Family: of.Family, Table: of.Table, Name: iptables.MarkerChain})
}

// decides reports whether the chain can affect a packet: whether it has rules, or drops packets that no
// rule matches.
func (c baseChain) decides(r *nfnetlink.Reader) (bool, error) {
	l := nfnetlink.Listing{Family: c.Family, Chain: c.Name, Limit: nfnetlink.MaxRules}
	rules, err := nfnetlink.ListRules(r, l, c.Table, func(string, nfnetlink.Attributes) ([]bool, error) { return []bool{true}, nil })
	return c.drops || len(rules) > 0, err
}

// legacyInFront describes the tables of iptables-legacy whose built-in chains get a packet at the
// priority last or before it, except tables with our rules.
func legacyInFront(p trace.Packet, last int32) (found []string, err error) {
	tables, err := xtables.List()
	if err != nil {
		return nil, err
	}
	family := capture.IPv6
	if p.To.Addr().Is4() {
		family = capture.IPv4
	}
	for _, table := range legacyTablesInFront(last) {
		chains, exists := tables[xtables.Table{Family: family, Name: string(table)}]
		if exists && !slices.Contains(chains, iptables.MarkerChain) {
			found = append(found, fmt.Sprintf("the legacy %s table %s", family, table))
		}
	}
	return found, nil
}
