// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// State is what a namespace holds of traffic capture.
type State struct {
	Backend capture.Backend // that our rules are in, "" where there are none
	Stamp   string          // of our Ruleset, unstamped where it is not there (any more)
	Foreign string          // somebody else's capture, as "table/chain"
}

// unstamped are rules of ours that do not say which ones they are.
const unstamped = "without a stamp"

// Inspect looks at the calling thread's namespace, for all backends, and
// executes nothing.
func Inspect() (state State, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return State{}, fmt.Errorf("opening netlink: %w", err)
	}
	defer conn.Close()
	chains, err := dump(conn, unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETCHAIN, nil)
	if err != nil {
		return State{}, err
	}
	legacy, err := legacyTables()
	if err != nil {
		return State{}, err
	}
	state.lookInto(capture.IPTablesLegacy, legacy)
	state.lookInto(capture.IPTablesNFT, iptablesChains(chains))
	for _, chain := range chains {
		switch table := text(chain[unix.NFTA_CHAIN_TABLE]); {
		case table == capture.TableName && chain[familyOf][0] == unix.NFPROTO_INET:
			state.Backend = capture.NFTables
		case strings.HasPrefix(table, "istio-proxy-"): // istio-cni's, by nft
			state.Foreign = table + "/" + text(chain[unix.NFTA_CHAIN_NAME])
		}
	}
	state.Stamp, err = readStamp(conn, state.Backend)
	return state, err
}

// foreignChains are those by which istio-init and istio-cni capture with
// iptables, of either variant.
var foreignChains = []string{"ISTIO_OUTPUT", "ISTIO_INBOUND"}

// lookInto tells our chains from others': beside ours, there is a marker.
func (s *State) lookInto(variant capture.Backend, tables tableList) {
	for table, chains := range tables {
		if slices.Contains(chains, capture.MarkerChain) {
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

func readStamp(conn *netlink.Conn, backend capture.Backend) (string, error) {
	var content []byte
	var err error
	switch backend {
	case capture.NFTables:
		content, err = readRules(conn, unix.NFPROTO_INET, capture.TableName, capture.StampChain)
	case capture.IPTablesNFT:
		content, err = readRules(conn, unix.NFPROTO_IPV4, string(capture.NAT), capture.MarkerChain)
	case capture.IPTablesLegacy:
		content, err = legacyFamilies[capture.IPv4].entries(string(capture.NAT))
	default:
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if stamp := comment(content, capture.StampPrefix); stamp != "" {
		return stamp, nil
	}
	return unstamped, nil
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

// readRules gives all that the kernel holds of the rules of a chain.
func readRules(conn *netlink.Conn, family byte, table, chain string) ([]byte, error) {
	rules, err := dump(conn, family, unix.NFT_MSG_GETRULE, []netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: []byte(table + "\x00")},
		{Type: unix.NFTA_RULE_CHAIN, Data: []byte(chain + "\x00")},
	})
	if err != nil {
		return nil, err
	}
	var content []byte
	for _, rule := range rules {
		// Not every kernel filters a dump by itself.
		if text(rule[unix.NFTA_RULE_TABLE]) == table && text(rule[unix.NFTA_RULE_CHAIN]) == chain {
			content = slices.Concat(content, rule[unix.NFTA_RULE_EXPRESSIONS], rule[unix.NFTA_RULE_USERDATA], []byte{0})
		}
	}
	return content, nil
}
