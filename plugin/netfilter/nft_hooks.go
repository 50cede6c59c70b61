// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// HooksInFront describes the chains of other programs that a packet meets before the
// last of ours, in the calling thread's namespace: what they do with it is not known.
// Empty chains that accept are left out. Errors: TooLarge, ErrChanging.
func HooksInFront(ctx context.Context, p capture.Packet) ([]string, error) {
	r, err := newReader(ctx)
	if err != nil {
		return nil, err
	}
	defer r.close()
	all, err := listChains(r)
	if err != nil {
		return nil, err
	}
	bases, err := list(r, listing{request: unix.NFT_MSG_GETCHAIN, what: "chains", limit: maxChains}, parseBaseChain)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, base := range bases {
		if !base.isMetBy(p) || hasMarker(all, base.objectName) {
			continue
		}
		decides, err := base.decides(r)
		if err != nil {
			return nil, err
		}
		if decides {
			found = append(found, fmt.Sprintf("chain %q of %s table %q, at %s", base.name, familyNames[base.family], base.table, base.hook.text(base.family)))
		}
	}
	legacy, err := legacyInFront(p)
	return append(found, legacy...), err
}

// isMetBy reports whether a packet meets the chain before the last of ours. A packet
// on lo meets the hooks for arriving packets, too.
func (c baseChain) isMetBy(p capture.Packet) bool {
	isIPv4 := p.To.Addr().Is4()
	if !c.hook.isInFront(c.family) || c.family == unix.NFPROTO_IPV4 && !isIPv4 || c.family == unix.NFPROTO_IPV6 && isIPv4 {
		return false
	}
	if c.family != unix.NFPROTO_NETDEV && c.hook.number == unix.NF_INET_LOCAL_OUT {
		return !p.Inbound
	}
	return p.Inbound || p.Interface == "lo"
}

// hasMarker reports whether a chain is in a table of iptables that holds our rules.
func hasMarker(chains []objectName, of objectName) bool {
	return slices.Contains(chains, objectName{of.family, of.table, markerChain})
}

// decides reports whether the chain has rules, or does not accept what none matches.
func (c baseChain) decides(r *reader) (bool, error) {
	l := listing{family: c.family, what: "rules in chain " + c.name, limit: maxRules, filter: named(unix.NFTA_RULE_CHAIN, c.name)}
	rules, err := listRules(r, l, c.table, func(chain string, _ attributes) ([]bool, error) {
		if chain != c.name {
			return nil, nil
		}
		return []bool{true}, nil
	})
	return c.drops || len(rules) > 0, err
}

// legacyInFront describes the tables of iptables-legacy, other than ours, whose
// built-in chains are in front of ours.
func legacyInFront(p capture.Packet) (found []string, err error) {
	tables, err := legacyTables()
	if err != nil {
		return nil, err
	}
	family := capture.IPv6
	if p.To.Addr().Is4() {
		family = capture.IPv4
	}
	for _, table := range []capture.Table{capture.Raw, capture.Mangle, capture.NAT} {
		chains, exists := tables[tableOf{family, string(table)}]
		if exists && !slices.Contains(chains, markerChain) {
			found = append(found, fmt.Sprintf("the legacy %s table %s, with priority %d", family, table, capture.Chain{Table: table}.Priority()))
		}
	}
	return found, nil
}
