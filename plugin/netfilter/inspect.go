// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// State describes our rules in a network namespace, and another program's capture rules.
type State struct {
	Backend config.Backend // the backend of our rules; "" if there are none
	Stamp   string         // of our rules, or unstamped; "" if there are none
	Foreign string         // a chain of another program's capture rules, as "table/chain"; "" if there is none
}

// unstamped is the Stamp in a State if our rules lack the rule that contains the Stamp.
const unstamped = "without a stamp"

// Inspect reads the State of the calling thread's namespace, for all backends. It executes no program.
// Errors: nfnetlink.TooLarge, nfnetlink.ErrChanging.
func Inspect(ctx context.Context) (state State, err error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return State{}, err
	}
	defer r.Close()
	chains, err := nfnetlink.ListChains(r)
	if err != nil {
		return State{}, err
	}
	legacy, err := xtables.List()
	if err != nil {
		return State{}, err
	}
	state.addTables(config.IPTablesLegacy, legacy)
	state.addTables(config.IPTablesNFT, iptables.TablesOf(chains))
	for _, chain := range chains {
		switch {
		case chain.Table == capture.TableName && chain.Family == unix.NFPROTO_INET:
			state.Backend = config.NFTables
		case strings.HasPrefix(chain.Table, "istio-proxy-"): // istio-init and istio-cni create such tables if they use nft
			state.Foreign = chain.Table + "/" + chain.Name
		}
	}
	state.Stamp, err = readStamp(r, state.Backend, legacy)
	return state, err
}

// foreignChains are chains that istio-init and istio-cni create, with either variant of iptables. In a
// table without a marker chain, they show another program's capture rules.
var foreignChains = []string{"ISTIO_OUTPUT", "ISTIO_INBOUND"}

// addTables adds the capture rules in the tables of one variant of iptables to the State. A table with
// a marker chain contains our rules.
func (s *State) addTables(variant config.Backend, tables xtables.Tables) {
	for table, chains := range tables {
		if slices.Contains(chains, iptables.MarkerChain) {
			s.Backend = variant
			continue
		}
		for _, chain := range foreignChains {
			if slices.Contains(chains, chain) {
				s.Foreign = table.Name + "/" + chain
			}
		}
	}
}

// readStamp reads our rules' stamp. It does not read iptables-legacy's table nat unless our rules are
// there, because reading a missing table creates it, and ADD commits the table nat last.
func readStamp(r *nfnetlink.Reader, backend config.Backend, legacy xtables.Tables) (stamp string, err error) {
	switch backend {
	case config.NFTables:
		stamp, err = nfnetlink.FindComment(r, unix.NFPROTO_INET, capture.TableName, capture.StampChain, capture.StampPrefix)
	case config.IPTablesNFT:
		stamp, err = nfnetlink.FindComment(r, unix.NFPROTO_IPV4, string(capture.NAT), iptables.MarkerChain, capture.StampPrefix)
	case config.IPTablesLegacy:
		var entries []byte
		nat := xtables.Table{Family: capture.IPv4, Name: string(capture.NAT)}
		if slices.Contains(legacy[nat], iptables.MarkerChain) {
			entries, err = nat.Entries()
		}
		stamp = nfnetlink.Comment(entries, capture.StampPrefix)
	}
	if err == nil && stamp == "" && backend != "" {
		stamp = unstamped
	}
	return stamp, err
}
