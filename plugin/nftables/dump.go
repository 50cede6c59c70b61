// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Dump reads our table. For comparisons, it keeps the bytes of selected attributes and, of rules, a hash.
func (Backend) Dump(ctx context.Context) (dump.Dump, error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return dump.Dump{}, err
	}
	defer r.Close()
	d := dumper{reader: r}
	d.ours(nfnetlink.Listing{
		Request: unix.NFT_MSG_GETTABLE,
		What:    "tables",
		Limit:   nfnetlink.MaxTables,
	}, unix.NFTA_TABLE_NAME, func(m nfnetlink.Attributes) dump.Object {
		return dump.Object{Name: "table " + nfnetlink.Text(m[unix.NFTA_TABLE_NAME]), Content: pick(m, unix.NFTA_TABLE_FLAGS)}
	})
	d.ours(nfnetlink.Listing{
		Request: unix.NFT_MSG_GETCHAIN,
		What:    "chains",
		Limit:   nfnetlink.MaxChains,
	}, unix.NFTA_CHAIN_TABLE, func(m nfnetlink.Attributes) dump.Object {
		content := pick(m, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_TYPE, chainFlags)
		return dump.Object{Name: "chain " + nfnetlink.Text(m[unix.NFTA_CHAIN_NAME]), Content: content}
	})
	d.rules()
	first := len(d.dumped)
	d.ours(nfnetlink.Listing{
		Request: unix.NFT_MSG_GETSET,
		What:    "sets" + inOurTable,
		Limit:   nfnetlink.MaxSets,
		Filter:  nfnetlink.Named(unix.NFTA_SET_TABLE, capture.TableName),
	}, unix.NFTA_SET_TABLE, func(m nfnetlink.Attributes) dump.Object {
		content := pick(m, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN)
		return dump.Object{Name: "set " + nfnetlink.Text(m[unix.NFTA_SET_NAME]), Content: content, KeyType: string(m[unix.NFTA_SET_KEY_TYPE])}
	})
	for i := first; i < len(d.dumped); i++ {
		d.elements(&d.dumped[i])
	}
	return dump.Dump{Objects: d.dumped}, d.err
}

// chainFlags is NFTA_CHAIN_FLAGS, which golang.org/x/sys lacks.
const chainFlags = 10

const inOurTable = " in table inet " + capture.TableName

// dumper collects objects. After its first error, its methods do nothing.
type dumper struct {
	reader       *nfnetlink.Reader
	dumped       []dump.Object
	elementCount int // elements of all sets
	err          error
}

// ours appends the objects of a list that belong to our table. table is the type of the attribute that
// names an object's table.
func (d *dumper) ours(l nfnetlink.Listing, table uint16, read func(nfnetlink.Attributes) dump.Object) {
	if d.err != nil {
		return
	}
	l.Family = unix.NFPROTO_INET
	var found []dump.Object
	found, d.err = nfnetlink.List(d.reader, l, func(message nfnetlink.Attributes) ([]dump.Object, error) {
		if nfnetlink.Text(message[table]) != capture.TableName {
			return nil, nil
		}
		return []dump.Object{read(message)}, nil
	})
	d.dumped = append(d.dumped, found...)
}

// rules adds the rules to the objects of their chains.
func (d *dumper) rules() {
	if d.err != nil {
		return
	}
	l := nfnetlink.Listing{Family: unix.NFPROTO_INET, What: "rules" + inOurTable, Limit: nfnetlink.MaxOurRules, Bytes: nfnetlink.MaxOurBytes}
	var rules []dump.Rule
	rules, d.err = nfnetlink.ListRules(d.reader, l, capture.TableName, func(chain string, rule nfnetlink.Attributes) ([]dump.Rule, error) {
		comment, _ := nfnetlink.UserComment(rule[unix.NFTA_RULE_USERDATA])
		parsed, err := dump.Parse(comment, rule[unix.NFTA_RULE_EXPRESSIONS])
		return []dump.Rule{{Chain: "chain " + chain, Item: parsed}}, err
	})
	chains := dump.ByChain(rules)
	for i := range d.dumped {
		d.dumped[i].Items = chains[d.dumped[i].Name]
	}
}

// The kernel lists a set in parts. While it enlarges the set's hash table after additions, a part may
// not begin where the previous one ended, so that elements are missing or occur twice. Therefore the
// method elements reads a list of several parts until two consecutive readings are equal, at most
// maxReadings times after the first.
const maxReadings = 10

// elements reads the elements of a set, and adds them, sorted, to the set's object.
func (d *dumper) elements(set *dump.Object) {
	if d.err != nil {
		return
	}
	name := strings.TrimPrefix(set.Name, "set ")
	l := nfnetlink.Listing{
		Family: unix.NFPROTO_INET, Request: unix.NFT_MSG_GETSETELEM, What: "elements of sets" + inOurTable, Limit: nfnetlink.MaxElements,
		Filter: slices.Concat(nfnetlink.Named(unix.NFTA_SET_ELEM_LIST_TABLE, capture.TableName),
			nfnetlink.Named(unix.NFTA_SET_ELEM_LIST_SET, name)),
	}
	for n, again := 0, true; again && d.err == nil; n++ {
		before, parts := set.Items, 0
		set.Items, d.err = nfnetlink.List(d.reader, l, func(part nfnetlink.Attributes) ([]dump.Item, error) {
			parts++
			return parseElements(part[unix.NFTA_SET_ELEM_LIST_ELEMENTS])
		})
		slices.SortFunc(set.Items, func(a, b dump.Item) int { return strings.Compare(a.Content, b.Content) })
		if again = parts > 1 && !slices.Equal(before, set.Items); again && n == maxReadings {
			d.err = nfnetlink.ErrChanging
		}
	}
	if d.elementCount += len(set.Items); d.err == nil && d.elementCount > nfnetlink.MaxElements {
		d.err = nfnetlink.TooLarge{What: l.What, Limit: nfnetlink.MaxElements}
	}
}

func parseElements(data []byte) ([]dump.Item, error) {
	var items []dump.Item
	err := nfnetlink.EachAttribute(data, func(_ uint16, element []byte) error {
		var key, flags []byte
		err := nfnetlink.EachAttribute(element, func(kind uint16, content []byte) error {
			switch kind {
			case unix.NFTA_SET_ELEM_KEY:
				key, _ = nfnetlink.Nested(content, unix.NFTA_DATA_VALUE)
			case unix.NFTA_SET_ELEM_FLAGS:
				flags = content
			}
			return nil
		})
		items = append(items, dump.Item{Content: dump.ElementContent(key, flags)})
		return err
	})
	return items, err
}

func pick(message nfnetlink.Attributes, wanted ...uint16) string {
	var picked []string
	for _, attribute := range wanted {
		if data, ok := message[attribute]; ok {
			picked = append(picked, fmt.Sprintf("%d=%x", attribute, data))
		}
	}
	return strings.Join(picked, " ")
}
