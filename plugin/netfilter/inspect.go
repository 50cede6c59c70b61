// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// State is what a namespace holds of traffic capture.
type State struct {
	Backend config.Backend // that our rules are in, "" where there are none
	Stamp   string         // of our Ruleset, unstamped where it is not there (any more)
	Foreign string         // somebody else's capture, as "table/chain"
}

// unstamped are rules of ours that do not say which ones they are.
const unstamped = "without a stamp"

// Inspect looks at the calling thread's namespace, for all backends, and
// executes nothing. Errors: TooLarge.
func Inspect(ctx context.Context) (state State, err error) {
	r, err := newReader(ctx)
	if err != nil {
		return State{}, err
	}
	defer r.close()
	chains, err := listChains(r)
	if err != nil {
		return State{}, err
	}
	legacy, err := legacyTables()
	if err != nil {
		return State{}, err
	}
	state.lookInto(config.IPTablesLegacy, legacy)
	state.lookInto(config.IPTablesNFT, iptablesChains(chains))
	for _, chain := range chains {
		switch {
		case chain.table == capture.TableName && chain.family == unix.NFPROTO_INET:
			state.Backend = config.NFTables
		case strings.HasPrefix(chain.table, "istio-proxy-"): // istio-cni's, by nft
			state.Foreign = chain.table + "/" + chain.name
		}
	}
	state.Stamp, err = readStamp(r, state.Backend)
	return state, err
}

// foreignChains are those by which istio-init and istio-cni capture with
// iptables, of either variant.
var foreignChains = []string{"ISTIO_OUTPUT", "ISTIO_INBOUND"}

// lookInto tells our chains from others': beside ours, there is a marker.
func (s *State) lookInto(variant config.Backend, tables tableList) {
	for table, chains := range tables {
		if slices.Contains(chains, markerChain) {
			s.Backend = variant
			continue
		}
		for _, chain := range foreignChains {
			if slices.Contains(chains, chain) {
				s.Foreign = table.name + "/" + chain
			}
		}
	}
}

func readStamp(r *reader, backend config.Backend) (stamp string, err error) {
	switch backend {
	case config.NFTables:
		stamp, err = findComment(r, unix.NFPROTO_INET, capture.TableName, capture.StampChain, capture.StampPrefix)
	case config.IPTablesNFT:
		stamp, err = findComment(r, unix.NFPROTO_IPV4, string(capture.NAT), markerChain, capture.StampPrefix)
	case config.IPTablesLegacy:
		var entries []byte
		entries, err = legacyFamilies[capture.IPv4].entries(string(capture.NAT))
		stamp = comment(entries, capture.StampPrefix)
	default:
		return "", nil
	}
	if err == nil && stamp == "" {
		stamp = unstamped
	}
	return stamp, err
}

// comment finds the one that begins with a prefix among what the kernel holds.
// However a backend keeps it, it stands there in full and ends with a NUL.
func comment(content []byte, prefix string) string {
	start := bytes.Index(content, []byte(prefix))
	if start < 0 {
		return ""
	}
	return cString(content[start:])
}

// findComment finds the first one that begins with a prefix among the rules of
// a chain; empty where there is none.
func findComment(r *reader, family byte, table, chain, prefix string) (string, error) {
	l := listing{
		family: family, request: unix.NFT_MSG_GETRULE, what: "rules in chain " + chain, most: maxOurRules, bytes: maxOurBytes,
		filter: slices.Concat(named(unix.NFTA_RULE_TABLE, table), named(unix.NFTA_RULE_CHAIN, chain)),
	}
	found, err := list(r, l, func(rule attributes) ([]string, error) {
		// Not every kernel filters a list by itself.
		if text(rule[unix.NFTA_RULE_TABLE]) != table || text(rule[unix.NFTA_RULE_CHAIN]) != chain {
			return nil, nil
		}
		for _, content := range [][]byte{rule[unix.NFTA_RULE_EXPRESSIONS], rule[unix.NFTA_RULE_USERDATA]} {
			if text := comment(content, prefix); text != "" {
				return []string{text}, nil
			}
		}
		return nil, nil
	})
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}
