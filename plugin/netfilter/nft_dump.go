// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Dump reads our table. It keeps raw attributes, from an allow-list, because no
// library parses every expression.
func (NFTables) Dump(ctx context.Context) (Dump, error) {
	r, err := newReader(ctx)
	if err != nil {
		return Dump{}, err
	}
	defer r.close()
	d := dumper{reader: r}
	d.ours(listing{request: unix.NFT_MSG_GETTABLE, what: "tables", limit: maxTables}, unix.NFTA_TABLE_NAME, func(m attributes) object {
		return object{name: "table " + text(m[unix.NFTA_TABLE_NAME]), content: pick(m, unix.NFTA_TABLE_FLAGS)}
	})
	d.ours(listing{request: unix.NFT_MSG_GETCHAIN, what: "chains", limit: maxChains}, unix.NFTA_CHAIN_TABLE, func(m attributes) object {
		content := pick(m, unix.NFTA_CHAIN_HOOK, unix.NFTA_CHAIN_POLICY, unix.NFTA_CHAIN_TYPE, chainFlags)
		return object{name: "chain " + text(m[unix.NFTA_CHAIN_NAME]), content: content}
	})
	d.rules()
	first := len(d.dumped)
	d.ours(listing{request: unix.NFT_MSG_GETSET, what: "sets" + inOurTable, limit: maxSets, filter: named(unix.NFTA_SET_TABLE, capture.TableName)}, unix.NFTA_SET_TABLE, func(m attributes) object {
		content := pick(m, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN)
		return object{name: "set " + text(m[unix.NFTA_SET_NAME]), content: content, keyType: string(m[unix.NFTA_SET_KEY_TYPE])}
	})
	for i := first; i < len(d.dumped); i++ {
		d.elements(&d.dumped[i])
	}
	return Dump{d.dumped}, d.err
}

// chainFlags is NFTA_CHAIN_FLAGS, which golang.org/x/sys lacks.
const chainFlags = 10

const inOurTable = " in table inet " + capture.TableName

// dumper collects objects and stops at the first error.
type dumper struct {
	reader       *reader
	dumped       []object
	elementCount int // elements of all sets
	err          error
}

// ours appends the objects of a list whose attribute names our table.
func (d *dumper) ours(l listing, table uint16, read func(attributes) object) {
	if d.err != nil {
		return
	}
	l.family = unix.NFPROTO_INET
	var found []object
	found, d.err = list(d.reader, l, func(message attributes) ([]object, error) {
		if text(message[table]) != capture.TableName {
			return nil, nil
		}
		return []object{read(message)}, nil
	})
	d.dumped = append(d.dumped, found...)
}

// ruleOf is a rule with its chain.
type ruleOf struct {
	chain string
	item  item
}

// rules appends the rules to their chains.
func (d *dumper) rules() {
	if d.err != nil {
		return
	}
	l := listing{family: unix.NFPROTO_INET, what: "rules" + inOurTable, limit: maxOurRules, bytes: maxOurBytes}
	labels := labels{}
	var rules []ruleOf
	rules, d.err = listRules(d.reader, l, capture.TableName, func(chain string, rule attributes) ([]ruleOf, error) {
		comment, _ := userComment(rule[unix.NFTA_RULE_USERDATA])
		parsed, err := labels.item(comment, rule[unix.NFTA_RULE_EXPRESSIONS])
		return []ruleOf{{"chain " + chain, parsed}}, err
	})
	chains := map[string]*object{}
	for i := range d.dumped {
		chains[d.dumped[i].name] = &d.dumped[i]
	}
	for _, rule := range rules {
		if chain := chains[rule.chain]; chain != nil {
			chain.items = append(chain.items, rule.item)
		}
	}
}

// labels holds the labels of rules by their comment: equal comments share one string.
type labels map[string]string

// item reduces a rule to a label with its comment, and a hash of its expressions.
func (l labels) item(comment string, expressions []byte) (item, error) {
	var all sum
	err := eachAttribute(expressions, func(_ uint16, element []byte) error {
		expression, err := parseAttributes(element)
		if err != nil {
			return err
		}
		name, data := text(expression[unix.NFTA_EXPR_NAME]), expression[unix.NFTA_EXPR_DATA]
		if name == "counter" { // packets and bytes differ between namespaces
			data = nil
		}
		all.add(name, string(data))
		return nil
	})
	label, known := l[comment]
	if !known {
		label = ruleLabel(comment)
		l[comment] = label
	}
	content := all.sum()
	return item{label: label, content: string(content[:])}, err
}

// elements reads the elements of a set.
func (d *dumper) elements(set *object) {
	if d.err != nil {
		return
	}
	name := strings.TrimPrefix(set.name, "set ")
	l := listing{
		family: unix.NFPROTO_INET, request: unix.NFT_MSG_GETSETELEM, what: "elements of sets" + inOurTable, limit: maxElements,
		filter: slices.Concat(named(unix.NFTA_SET_ELEM_LIST_TABLE, capture.TableName), named(unix.NFTA_SET_ELEM_LIST_SET, name)),
	}
	set.items, d.err = list(d.reader, l, func(part attributes) ([]item, error) { return parseElements(part[unix.NFTA_SET_ELEM_LIST_ELEMENTS]) })
	if d.elementCount += len(set.items); d.err == nil && d.elementCount > maxElements {
		d.err = TooLarge{l.what, maxElements}
	}
	sortItems(set.items)
}

func parseElements(data []byte) ([]item, error) {
	var items []item
	err := eachAttribute(data, func(_ uint16, element []byte) error {
		var key, flags []byte
		err := eachAttribute(element, func(kind uint16, content []byte) error {
			switch kind {
			case unix.NFTA_SET_ELEM_KEY:
				key, _ = nested(content, unix.NFTA_DATA_VALUE)
			case unix.NFTA_SET_ELEM_FLAGS:
				flags = content
			}
			return nil
		})
		items = append(items, item{content: elementContent(key, flags)})
		return err
	})
	return items, err
}

// elementContent returns a key followed by its flags, which mark the end of a range.
func elementContent(key, flags []byte) string {
	content := make([]byte, len(key)+flagsLength)
	copy(content, key)
	copy(content[len(key):], flags)
	return string(content)
}

// elementFlags returns the flags as the kernel lists them; it leaves out flags of zero.
func elementFlags(isEnd bool) []byte {
	if !isEnd {
		return nil
	}
	return binary.BigEndian.AppendUint32(nil, unix.NFT_SET_ELEM_INTERVAL_END)
}

// flagsLength is the length of NFTA_SET_ELEM_FLAGS.
const flagsLength = 4

func sortItems(items []item) {
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.content, b.content) })
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
