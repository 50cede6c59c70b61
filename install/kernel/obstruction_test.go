// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// expression returns a statement of a rule as the kernel lists it.
func expression(t testing.TB, name string, data ...netlink.Attribute) netlink.Attribute {
	t.Helper()
	inner := marshal(t, data...)
	return netlink.Attribute{Type: unix.NFTA_LIST_ELEM, Data: marshal(t,
		netlink.Attribute{Type: unix.NFTA_EXPR_NAME, Data: []byte(name + "\x00")}, netlink.Attribute{Type: unix.NFTA_EXPR_DATA, Data: inner})}
}

func marshal(t testing.TB, list ...netlink.Attribute) []byte {
	t.Helper()
	data, err := netlink.MarshalAttributes(list)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func number(kind uint16, value uint32) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: binary.BigEndian.AppendUint32(nil, value)}
}

// TestObstructive includes statements that nft does not write.
func TestObstructive(t *testing.T) {
	t.Parallel()
	verdict := func(code uint32) netlink.Attribute {
		return netlink.Attribute{Type: unix.NFTA_IMMEDIATE_DATA, Data: marshal(t,
			netlink.Attribute{Type: unix.NFTA_DATA_VERDICT, Data: marshal(t, number(unix.NFTA_VERDICT_CODE, code))})}
	}
	target := func(name string) netlink.Attribute {
		return netlink.Attribute{Type: unix.NFTA_TARGET_NAME, Data: []byte(name + "\x00")}
	}
	for name, tt := range map[string]struct {
		statement netlink.Attribute
		want      string
	}{
		"accept":           {expression(t, "immediate", verdict(1)), ""},
		"jump":             {expression(t, "immediate", verdict(0xfffffffd)), ""},
		"queue as verdict": {expression(t, "immediate", verdict(0x00010003)), `statement "immediate"`},
		"queue":            {expression(t, "queue"), `statement "queue"`},
		"a value":          {expression(t, "immediate", number(unix.NFTA_IMMEDIATE_DREG, 8)), ""},
		"a set":            {expression(t, "lookup", number(unix.NFTA_LOOKUP_SREG, 8)), ""},
		"a map of values":  {expression(t, "lookup", number(unix.NFTA_LOOKUP_DREG, 8)), ""},
		"a map of verdicts": {
			expression(t, "lookup", number(unix.NFTA_LOOKUP_DREG, unix.NFT_REG_VERDICT)), "a map of verdicts",
		},
		"reads a mark":   {expression(t, "meta", number(unix.NFTA_META_DREG, 8)), ""},
		"sets a mark":    {expression(t, "meta", number(unix.NFTA_META_SREG, 8)), `a change by statement "meta"`},
		"sets a zone":    {expression(t, "ct", number(unix.NFTA_CT_SREG, 8)), `a change by statement "ct"`},
		"a destination":  {expression(t, "payload", number(unix.NFTA_PAYLOAD_SREG, 8)), `a change by statement "payload"`},
		"dnat":           {expression(t, "nat"), `statement "nat"`},
		"logs":           {expression(t, "target", target("LOG")), ""},
		"CT of iptables": {expression(t, "target", target("CT")), `target "CT"`},
		"not known":      {expression(t, "of tomorrow"), `statement "of tomorrow"`},
	} {
		if got := obstructive(marshal(t, expression(t, "counter"), tt.statement)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got := obstructive([]byte{1}); got == "" {
		t.Error("a rule that can't be read is harmless")
	}
}

// TestInFront expects chains to be in front that packets meet before the last of ours.
func TestInFront(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		family   byte
		hook     uint32
		priority int32
		want     bool
	}{
		{unix.NFPROTO_INET, unix.NF_INET_PRE_ROUTING, -101, true},
		{unix.NFPROTO_INET, unix.NF_INET_PRE_ROUTING, -100, false},
		{unix.NFPROTO_IPV4, unix.NF_INET_LOCAL_OUT, -101, true},
		{unix.NFPROTO_IPV6, unix.NF_INET_LOCAL_OUT, -101, true},
		{unix.NFPROTO_IPV6, unix.NF_INET_LOCAL_OUT, -100, false},
		{unix.NFPROTO_INET, unix.NF_INET_LOCAL_IN, -400, false},
		{unix.NFPROTO_INET, unix.NF_INET_FORWARD, -400, false},
		{unix.NFPROTO_INET, unix.NF_INET_POST_ROUTING, -400, false},
		{unix.NFPROTO_INET, inetIngress, 1000, true},
		{unix.NFPROTO_IPV4, inetIngress, -400, false},
		{unix.NFPROTO_NETDEV, unix.NF_NETDEV_INGRESS, 1000, true},
		{unix.NFPROTO_NETDEV, unix.NF_NETDEV_INGRESS + 1, -400, false}, // egress
		{unix.NFPROTO_ARP, 0, -400, false},
		{unix.NFPROTO_BRIDGE, unix.NF_INET_PRE_ROUTING, -400, false},
	} {
		if got := (baseHook{number: tt.hook, priority: tt.priority}).isInFront(tt.family, -101); got != tt.want {
			t.Errorf("family %d, hook %d, priority %d: in front %v", tt.family, tt.hook, tt.priority, got)
		}
	}
}

// TestLastOfOurs expects the priority of the rules that are there: earlier versions of them
// have iptables' one.
func TestLastOfOurs(t *testing.T) {
	t.Parallel()
	chain := func(table, name string, priority int32) baseChain {
		return baseChain{nfnetlink.ChainName{Family: unix.NFPROTO_INET, Table: table, Name: name}, baseHook{priority: priority}, false}
	}
	ours := chain("capture-cni", "nat_OUTPUT", -101)
	for _, tt := range []struct {
		chains []baseChain
		want   int32
	}{
		{nil, -100},
		{[]baseChain{chain("capture-cni", "raw_OUTPUT", -300), ours}, -101},
		{[]baseChain{chain("other", "nat_OUTPUT", -500), ours, chain("capture-cni", "filter_OUTPUT", 0)}, -101},
		{[]baseChain{chain("capture-cni", "nat_OUTPUT", -100)}, -100},
	} {
		if got := lastOfOurs(tt.chains); got != tt.want {
			t.Errorf("%v: got %d, want %d", tt.chains, got, tt.want)
		}
	}
}

// FuzzObstructive parses rules and tables that no kernel lists.
func FuzzObstructive(f *testing.F) {
	f.Add(marshal(f, expression(f, "immediate", number(unix.NFTA_IMMEDIATE_DREG, 0))))
	f.Fuzz(func(t *testing.T, data []byte) {
		obstructive(data)
		if parsed, err := nfnetlink.ParseAttributes(data); err == nil {
			parsed[nfnetlink.Family] = []byte{unix.NFPROTO_INET}
			if chains, err := parseBaseChain(parsed); err == nil {
				tablesInFront(chains, lastOfOurs(chains))
			}
		}
	})
}
