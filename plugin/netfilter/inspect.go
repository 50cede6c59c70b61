// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// State describes the capture rules in a namespace.
type State struct {
	Backend config.Backend // that holds our rules; "" for none
	Stamp   string         // of our Ruleset; unstamped where the rule that bears it is missing
	Foreign string         // another plugin's capture, as "table/chain"
}

// unstamped stands for the Stamp of rules that bear none.
const unstamped = "without a stamp"

// Inspect reads the State of the calling thread's namespace, for all backends.
// It executes no program. Errors: TooLarge.
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
	state.addTables(config.IPTablesLegacy, legacy)
	state.addTables(config.IPTablesNFT, iptablesChains(chains))
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

// foreignChains are the chains that istio-init and istio-cni create with either
// variant of iptables.
var foreignChains = []string{"ISTIO_OUTPUT", "ISTIO_INBOUND"}

// addTables adds what a variant's tables hold. A table with a marker chain is ours.
func (s *State) addTables(variant config.Backend, tables tableList) {
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
		entries, err = tableOf{capture.IPv4, string(capture.NAT)}.legacyEntries()
		stamp = comment(entries, capture.StampPrefix)
	default:
		return "", nil
	}
	if err == nil && stamp == "" {
		stamp = unstamped
	}
	return stamp, err
}

// comment returns the first comment that begins with a prefix. Every backend
// keeps comments as text that ends with a NUL.
func comment(content []byte, prefix string) string {
	start := bytes.Index(content, []byte(prefix))
	if start < 0 {
		return ""
	}
	return untilNUL(content[start:])
}

// findComment returns the first comment in a chain that begins with a prefix; ""
// where there is none.
func findComment(r *reader, family byte, table, chain, prefix string) (string, error) {
	l := listing{family: family, what: "rules in chain " + chain, limit: maxOurRules, bytes: maxOurBytes, filter: named(unix.NFTA_RULE_CHAIN, chain)}
	return first(listRules(r, l, table, func(of string, rule attributes) ([]string, error) {
		if of != chain {
			return nil, nil
		}
		text := cmp.Or(comment(rule[unix.NFTA_RULE_EXPRESSIONS], prefix), comment(rule[unix.NFTA_RULE_USERDATA], prefix))
		if text == "" {
			return nil, nil
		}
		return []string{text}, nil
	}))
}
