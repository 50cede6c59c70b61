// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Rule is a rule with the name of its chain.
type Rule struct {
	Chain string
	Item  Item
}

// ByChain returns the rules of each chain, in their order.
func ByChain(rules []Rule) map[string][]Item {
	chains := map[string][]Item{}
	for _, rule := range rules {
		chains[rule.Chain] = append(chains[rule.Chain], rule.Item)
	}
	return chains
}

// NewItem returns a rule whose content the backend has encoded without the comment. If the comment is a
// Stamp, StampPrefix precedes the content, so that rules that differ only in their Stamps are equal, but
// never equal to a rule without a Stamp.
func NewItem(comment, content string) Item {
	if capture.IsStamp(comment) {
		content = capture.StampPrefix + content
	}
	return Item{comment, content}
}

// Parse returns an Item with a rule's comment, and a hash of its nf_tables expressions, without counters
// and comments.
func Parse(comment string, expressions []byte) (Item, error) {
	var all Sum
	err := nfnetlink.EachAttribute(expressions, func(_ uint16, element []byte) error {
		expression, err := nfnetlink.ParseAttributes(element)
		if err != nil {
			return err
		}
		name, data := nfnetlink.Text(expression[unix.NFTA_EXPR_NAME]), expression[unix.NFTA_EXPR_DATA]
		switch name {
		case "match":
			if match, _ := nfnetlink.Nested(data, unix.NFTA_MATCH_NAME); nfnetlink.Text(match) == "comment" { // of iptables
				return nil
			}
		case "counter": // decides nothing
			return nil
		}
		all.Add(name, string(data))
		return nil
	})
	content := all.Sum()
	return NewItem(comment, string(content[:])), err
}

// ElementContent returns the content of a set's element, which is its key followed by its flags. One of
// the flags marks the end of a range.
func ElementContent(key, flags []byte) string {
	content := make([]byte, len(key)+flagsLength)
	copy(content, key)
	copy(content[len(key):], flags)
	return string(content)
}

// flagsLength is the length of NFTA_SET_ELEM_FLAGS.
const flagsLength = 4
