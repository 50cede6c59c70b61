// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// State is what a namespace holds of traffic capture.
type State struct {
	Stamp   string // of our Ruleset, "" where there is none, unstamped where somebody removed it
	Foreign string // somebody else's capture, as "table/chain"
}

// unstamped is a table of our name that does not say which rules it holds.
const unstamped = "without a stamp"

// Inspect looks at the calling thread's namespace.
func Inspect() (State, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return State{}, fmt.Errorf("opening netlink: %w", err)
	}
	defer conn.Close()
	chains, err := dump(conn, unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETCHAIN, nil)
	if err != nil {
		return State{}, err
	}
	var state State
	ours := false
	for _, chain := range chains {
		table, name := text(chain[unix.NFTA_CHAIN_TABLE]), text(chain[unix.NFTA_CHAIN_NAME])
		switch {
		case table == capture.TableName && chain[familyOf][0] == unix.NFPROTO_INET:
			ours = true
		case isCapture(table, name):
			state.Foreign = table + "/" + name
		}
	}
	if ours {
		if state.Stamp, err = readStamp(conn); err != nil {
			return State{}, err
		}
	}
	if state.Foreign == "" {
		state.Foreign, err = legacyCapture()
	}
	return state, err
}

// foreignChains are those by which istio-init and istio-cni capture with
// iptables, of either variant.
var foreignChains = []string{"ISTIO_OUTPUT", "ISTIO_INBOUND"}

// isCapture knows another plugin's capture by iptables on nf_tables, or by nft.
func isCapture(table, chain string) bool {
	return strings.HasPrefix(table, "istio-proxy-") || slices.Contains(foreignChains, chain)
}

// Stamp is the stamp of the Ruleset in the calling thread's namespace, "" where there is none.
func Stamp() (string, error) {
	state, err := Inspect()
	return state.Stamp, err
}

func readStamp(conn *netlink.Conn) (string, error) {
	rules, err := dump(conn, unix.NFPROTO_INET, unix.NFT_MSG_GETRULE, []netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: []byte(capture.TableName + "\x00")},
		{Type: unix.NFTA_RULE_CHAIN, Data: []byte(capture.StampChain + "\x00")},
	})
	if err != nil {
		return "", err
	}
	for _, rule := range rules {
		if stamp, ok := userdata.GetString(rule[unix.NFTA_RULE_USERDATA], userdata.TypeComment); ok {
			return stamp, nil
		}
	}
	return unstamped, nil
}
