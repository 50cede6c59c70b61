// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Dump reads our table. Attributes are compared as raw bytes, from an
// allow-list, because no library reads every expression back.
func (NFTables) Dump(context.Context) (Table, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return Table{}, fmt.Errorf("opening netlink: %w", err)
	}
	defer conn.Close()
	d := dumper{conn: conn}
	for _, message := range d.ours(unix.NFT_MSG_GETTABLE, unix.NFTA_TABLE_NAME) {
		d.object("table", message, unix.NFTA_TABLE_NAME, unix.NFTA_TABLE_FLAGS)
	}
	for _, message := range d.ours(unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE) {
		d.object("chain", message, unix.NFTA_CHAIN_NAME,
			unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_TYPE, chainFlags)
	}
	for _, message := range d.ours(unix.NFT_MSG_GETRULE, unix.NFTA_RULE_TABLE) {
		d.rule(message)
	}
	for _, message := range d.ours(unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE) {
		d.object("set", message, unix.NFTA_SET_NAME,
			unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN)
		d.elements(message)
	}
	return Table{d.objects}, d.err
}

// chainFlags is NFTA_CHAIN_FLAGS, which golang.org/x/sys lacks.
const chainFlags = 10

// dumper gathers objects and stops at the first error.
type dumper struct {
	conn    *netlink.Conn
	objects []object
	err     error
}

// ours dumps all objects of a kind and keeps those whose table attribute
// names our table: not every kernel filters a dump by itself.
func (d *dumper) ours(request uint16, tableAttribute uint16) []attributes {
	var kept []attributes
	for _, message := range d.dump(request, nil) {
		if text(message[tableAttribute]) == capture.TableName {
			kept = append(kept, message)
		}
	}
	return kept
}

// dump asks for a list and retries where it changed while it was read.
func (d *dumper) dump(request uint16, filter []netlink.Attribute) []attributes {
	if d.err != nil {
		return nil
	}
	var messages []attributes
	messages, d.err = dump(d.conn, unix.NFPROTO_INET, request, filter)
	return messages
}

// object appends a table, chain or set with the content of the given attributes.
func (d *dumper) object(kind string, message attributes, nameAttribute uint16, content ...uint16) {
	name := kind + " " + text(message[nameAttribute])
	d.objects = append(d.objects, object{name: name, content: pick(message, content...)})
}

func (d *dumper) rule(message attributes) {
	expressions, err := parseExpressions(message[unix.NFTA_RULE_EXPRESSIONS])
	if err != nil {
		d.err = errors.Join(d.err, err)
		return
	}
	chain := "chain " + text(message[unix.NFTA_RULE_CHAIN])
	label, _ := userdata.GetString(message[unix.NFTA_RULE_USERDATA], userdata.TypeComment)
	for i := range d.objects {
		if d.objects[i].name == chain {
			d.objects[i].items = append(d.objects[i].items, item{label: ruleLabel(label), content: label + "\x00" + expressions})
		}
	}
}

// parseExpressions spells a rule's expressions; of a counter only that it is there.
func parseExpressions(data []byte) (string, error) {
	list, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return "", fmt.Errorf("reading nftables: %w", err)
	}
	var spelled []string
	for _, element := range list {
		expression, err := parseAttributes(element.Data)
		if err != nil {
			return "", err
		}
		name := text(expression[unix.NFTA_EXPR_NAME])
		if name != "counter" {
			name += " " + hex.EncodeToString(expression[unix.NFTA_EXPR_DATA])
		}
		spelled = append(spelled, name)
	}
	return strings.Join(spelled, ";"), nil
}

// elements reads those of the set that was appended last.
func (d *dumper) elements(set attributes) {
	messages := d.dump(unix.NFT_MSG_GETSETELEM, []netlink.Attribute{
		{Type: unix.NFTA_SET_ELEM_LIST_TABLE, Data: []byte(capture.TableName + "\x00")},
		{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: set[unix.NFTA_SET_NAME]},
	})
	last := &d.objects[len(d.objects)-1]
	for _, chunk := range messages {
		list, err := netlink.UnmarshalAttributes(chunk[unix.NFTA_SET_ELEM_LIST_ELEMENTS])
		if err != nil {
			d.err = errors.Join(d.err, fmt.Errorf("reading nftables: %w", err))
			return
		}
		for _, element := range list {
			parsed, err := parseAttributes(element.Data)
			if err != nil {
				d.err = errors.Join(d.err, err)
				return
			}
			content := pick(parsed, unix.NFTA_SET_ELEM_KEY, unix.NFTA_SET_ELEM_FLAGS)
			last.items = append(last.items, item{label: elementLabel(set, parsed), content: content})
		}
	}
	slices.SortFunc(last.items, func(a, b item) int { return strings.Compare(a.content, b.content) })
}

func pick(message attributes, wanted ...uint16) string {
	var picked []string
	for _, attribute := range wanted {
		if data, ok := message[attribute]; ok {
			picked = append(picked, fmt.Sprintf("%d=%x", attribute, data))
		}
	}
	return strings.Join(picked, " ")
}
