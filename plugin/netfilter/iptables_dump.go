// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// dumpFromNFTables reads what iptables' newer variant put into the kernel, as
// NFTables.Dump does: raw attributes, reduced to what decides about packets.
func dumpFromNFTables() (Table, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return Table{}, fmt.Errorf("opening netlink: %w", err)
	}
	defer conn.Close()
	tables, err := nfTables(conn)
	if err != nil {
		return Table{}, err
	}
	var dumped Table
	for _, name := range slices.SortedFunc(maps.Keys(tables), compareTables) {
		if !slices.Contains(tables[name], capture.MarkerChain) {
			continue
		}
		objects, err := dumpChains(conn, name, tables[name])
		if err != nil {
			return Table{}, err
		}
		dumped.objects = append(dumped.objects, objects...)
	}
	return dumped, nil
}

func compareTables(a, b tableOf) int {
	return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.name, b.name))
}

// dumpChains gives our chains of a table, and of others' those that have a rule
// that leads into ours, reduced to such rules.
func dumpChains(conn *netlink.Conn, table tableOf, chains []string) ([]object, error) {
	rules, err := dump(conn, protocolFamily[table.family], unix.NFT_MSG_GETRULE, nil)
	if err != nil {
		return nil, err
	}
	items := map[string][]item{}
	for _, rule := range rules {
		chain, expressions := text(rule[unix.NFTA_RULE_CHAIN]), rule[unix.NFTA_RULE_EXPRESSIONS]
		if text(rule[unix.NFTA_RULE_TABLE]) != table.name || !isOurs(chain) && !leadsToOurs(expressions) {
			continue
		}
		spelled, err := parseExpressions(expressions)
		if err != nil {
			return nil, err
		}
		why := ruleComment(rule)
		if _, isNote := capture.ParseMade(why); !isNote { // it differs from namespace to namespace
			items[chain] = append(items[chain], item{label: ruleLabel(why), content: why + "\x00" + spelled})
		}
	}
	var objects []object
	for _, chain := range slices.Sorted(slices.Values(chains)) {
		if isOurs(chain) || len(items[chain]) > 0 {
			objects = append(objects, object{name: table.chain(chain), items: items[chain]})
		}
	}
	return objects, nil
}

// chain names a chain to people.
func (t tableOf) chain(name string) string {
	return fmt.Sprintf("chain %s of %s table %s", name, t.family, t.name)
}

// ruleComment finds the comment where one version of iptables or the other
// keeps it: beside the rule, or as a match that always holds.
func ruleComment(rule attributes) string {
	if comment, ok := userdata.GetString(rule[unix.NFTA_RULE_USERDATA], userdata.TypeComment); ok {
		return comment
	}
	list, err := netlink.UnmarshalAttributes(rule[unix.NFTA_RULE_EXPRESSIONS])
	if err != nil {
		return ""
	}
	for _, expression := range list {
		name, _ := nested(expression.Data, unix.NFTA_EXPR_DATA, unix.NFTA_MATCH_NAME)
		if info, ok := nested(expression.Data, unix.NFTA_EXPR_DATA, unix.NFTA_MATCH_INFO); ok && text(name) == "comment" {
			return cString(info)
		}
	}
	return ""
}
