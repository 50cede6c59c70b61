// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// obstruction describes the first rule of another table, or the first policy rule, that could keep packets
// from our rules in table inet capture-cni, or returns "" if there is none. It reads the calling thread's
// namespace, including the tables of iptables-legacy, and executes no program.
//
// A rule that accepts a packet before our chain does not keep the packet from our chain, because the
// hook's next chain still gets the packet. A rule that changes a packet, its connection or its route
// can. So every statement that is not known to be harmless counts. obstruction does not follow jumps, so
// if one of a table's base chains precedes ours, all rules of the table count, except those of its base
// chains that do not precede ours. Errors: TooLarge, ErrChanging.
func obstruction(ctx context.Context) (string, error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return "", err
	}
	defer r.Close()
	chains, err := nfnetlink.List(r,
		nfnetlink.Listing{Request: unix.NFT_MSG_GETCHAIN, What: "chains", Limit: nfnetlink.MaxChains}, parseBaseChain)
	if err != nil {
		return "", err
	}
	last := lastOfOurs(chains)
	for _, table := range tablesInFront(chains, last) {
		obstruction, err := table.obstruction(r)
		if obstruction != "" || err != nil {
			return obstruction, err
		}
	}
	if obstruction, err := legacyObstruction(last); obstruction != "" || err != nil {
		return obstruction, err
	}
	return routedAround()
}

// baseChain is a chain that a hook calls.
type baseChain struct {
	nfnetlink.ChainName
	hook  baseHook
	drops bool // drops packets that no rule matches
}

func (c baseChain) isOurs() bool {
	return c.Family == unix.NFPROTO_INET && c.Table == capture.TableName
}

// parseBaseChain returns the chain if a hook calls it, and otherwise nothing.
func parseBaseChain(chain nfnetlink.Attributes) ([]baseChain, error) {
	hook, isBase := hookOf(chain)
	name := nfnetlink.ChainName{
		Family: chain[nfnetlink.Family][0],
		Table:  nfnetlink.Text(chain[unix.NFTA_CHAIN_TABLE]),
		Name:   nfnetlink.Text(chain[unix.NFTA_CHAIN_NAME]),
	}
	if !isBase {
		return nil, nil
	}
	policy := chain[unix.NFTA_CHAIN_POLICY]
	drops := len(policy) == 4 && binary.BigEndian.Uint32(policy) == dropVerdict
	return []baseChain{{name, hook, drops}}, nil
}

// frontTable is another program's table with a base chain that gets packets before ours, or that routes
// packets again. A chain at the same priority as ours counts, too, because there the kernel calls the
// newest chain first.
type frontTable struct {
	family byte
	name   string
	place  string          // of its first base chain that isInFront
	later  map[string]bool // its base chains that are not isInFront
}

func tablesInFront(chains []baseChain, last int32) []*frontTable {
	var tables []*frontTable
	known := map[nfnetlink.ChainName]*frontTable{}
	for _, chain := range chains {
		if chain.isOurs() {
			continue
		}
		key := nfnetlink.ChainName{Family: chain.Family, Table: chain.Table}
		table := known[key]
		if table == nil {
			table = &frontTable{family: chain.Family, name: chain.Table, later: map[string]bool{}}
			tables, known[key] = append(tables, table), table
		}
		switch {
		case !chain.hook.isInFront(chain.Family, last):
			table.later[chain.Name] = true
		case table.place == "":
			table.place = chain.hook.text(chain.Family) + ", in front of the capture rules"
			if chain.hook.routes && chain.hook.priority > last {
				table.place = chain.hook.text(chain.Family) + ", and routes packets again behind the capture rules"
			}
		}
	}
	return slices.DeleteFunc(tables, func(t *frontTable) bool { return t.place == "" })
}

// obstruction describes the first rule of the table that could keep packets from our rules, or returns
// "".
func (t *frontTable) obstruction(r *nfnetlink.Reader) (string, error) {
	of := familyNames[t.family] + " table " + strconv.Quote(t.name)
	return nfnetlink.First(nfnetlink.ListRules(r, nfnetlink.Listing{
		Family: t.family,
		What:   "rules of " + of,
		Limit:  nfnetlink.MaxRules,
	}, t.name, func(chain string, rule nfnetlink.Attributes) ([]string, error) {
		if t.later[chain] {
			return nil, nil
		}
		statement := obstructive(rule[unix.NFTA_RULE_EXPRESSIONS])
		if statement == "" {
			return nil, nil
		}
		return []string{fmt.Sprintf("%s in chain %q of %s, which is at %s", statement, chain, of, t.place)}, nil
	}))
}

var familyNames = map[byte]string{
	unix.NFPROTO_INET:   "inet",
	unix.NFPROTO_IPV4:   "ip",
	unix.NFPROTO_IPV6:   "ip6",
	unix.NFPROTO_NETDEV: "netdev",
}

// baseHook is a base chain's hook and priority.
type baseHook struct {
	number   uint32
	priority int32
	routes   bool // routes packets again that its rules changed
}

func hookOf(chain nfnetlink.Attributes) (baseHook, bool) {
	hook, isBase := chain[unix.NFTA_CHAIN_HOOK]
	if !isBase {
		return baseHook{}, false
	}
	parsed, err := nfnetlink.ParseAttributes(hook)
	number, priority := parsed[unix.NFTA_HOOK_HOOKNUM], parsed[unix.NFTA_HOOK_PRIORITY]
	if err != nil || len(number) != 4 || len(priority) != 4 {
		return baseHook{}, false
	}
	routes := nfnetlink.Text(chain[unix.NFTA_CHAIN_TYPE]) == "route"
	return baseHook{binary.BigEndian.Uint32(number), int32(binary.BigEndian.Uint32(priority)), routes}, true
}

// inetIngress is NF_INET_INGRESS, which golang.org/x/sys lacks.
const inetIngress = 5

// isInFront reports whether a packet can meet the chain at the priority last or before it, or whether the
// chain routes the packet again. last is the result of lastOfOurs.
func (h baseHook) isInFront(family byte, last int32) bool {
	switch family {
	case unix.NFPROTO_NETDEV:
		return h.number == unix.NF_NETDEV_INGRESS
	case unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6:
		isOurs := h.number == unix.NF_INET_PRE_ROUTING || h.number == unix.NF_INET_LOCAL_OUT
		return isOurs && h.priority <= last || h.routes || family == unix.NFPROTO_INET && h.number == inetIngress
	}
	return false
}

func (h baseHook) text(family byte) string {
	name := "ingress"
	switch {
	case family == unix.NFPROTO_NETDEV:
	case h.number == unix.NF_INET_PRE_ROUTING:
		name = "prerouting"
	case h.number == unix.NF_INET_LOCAL_OUT:
		name = "output"
	}
	return fmt.Sprintf("hook %s with priority %d", name, h.priority)
}

// harmless contains the statements that only match, count, log or drop a packet. A number other than 0
// is the attribute with which the statement changes a packet or its connection. A statement with this
// attribute is not harmless.
var harmless = map[string]uint16{
	"bitwise": 0, "byteorder": 0, "cmp": 0, "connlimit": 0, "counter": 0, "dynset": 0, "fib": 0, "hash": 0, "last": 0, "limit": 0, "log": 0,
	"match": 0, "numgen": 0, "osf": 0, "quota": 0, "range": 0, "reject": 0, "rt": 0, "socket": 0, "tunnel": 0, "xfrm": 0,
	"ct": unix.NFTA_CT_SREG, "exthdr": unix.NFTA_EXTHDR_SREG, "meta": unix.NFTA_META_SREG, "payload": unix.NFTA_PAYLOAD_SREG,
}

// obstructive describes a rule's first statement that could keep a packet from our rules, or returns
// "".
func obstructive(expressions []byte) (statement string) {
	err := nfnetlink.EachAttribute(expressions, func(_ uint16, element []byte) error {
		expression, err := nfnetlink.ParseAttributes(element)
		if err != nil || statement != "" {
			return err
		}
		name := nfnetlink.Text(expression[unix.NFTA_EXPR_NAME])
		if data, err := nfnetlink.ParseAttributes(expression[unix.NFTA_EXPR_DATA]); err != nil || !isHarmless(name, data) {
			statement = describe(name, data)
		}
		return nil
	})
	if err != nil {
		return "a rule that can't be read"
	}
	return statement
}

// dropVerdict and queueVerdict are the numbers of NF_DROP and NF_QUEUE, and verdictMask is
// NF_VERDICT_MASK, in include/uapi/linux/netfilter.h. A queue sends a packet to a program, which can
// make the packet skip all later chains.
const (
	dropVerdict  = 0
	queueVerdict = 3
	verdictMask  = 0xff
)

func isHarmless(name string, data nfnetlink.Attributes) bool {
	switch name {
	case "immediate":
		code, isVerdict := nfnetlink.Nested(data[unix.NFTA_IMMEDIATE_DATA], unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CODE)
		return !isVerdict || len(code) == 4 && binary.BigEndian.Uint32(code)&verdictMask != queueVerdict
	case "lookup":
		_, hasResult := data[unix.NFTA_LOOKUP_DREG]
		return !hasResult || !slices.Equal(data[unix.NFTA_LOOKUP_DREG], []byte{0, 0, 0, unix.NFT_REG_VERDICT})
	case "target":
		return isHarmlessTarget(nfnetlink.Text(data[unix.NFTA_TARGET_NAME]))
	}
	changes, known := harmless[name]
	_, isChange := data[changes]
	return known && (changes == 0 || !isChange)
}

func describe(name string, data nfnetlink.Attributes) string {
	switch name {
	case "target":
		return fmt.Sprintf("target %q", nfnetlink.Text(data[unix.NFTA_TARGET_NAME]))
	case "lookup":
		return "a map of verdicts"
	}
	if harmless[name] != 0 {
		return fmt.Sprintf("a change by statement %q", name)
	}
	return fmt.Sprintf("statement %q", name)
}
