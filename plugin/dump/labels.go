// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Rule is a rule with its chain.
type Rule struct {
	Chain string
	Item  Item
}

// Labels holds the labels of rules by their comment: equal comments share one string.
type Labels map[string]string

// Item reduces a rule to a label with its comment, and a hash of its expressions.
func (l Labels) Item(comment string, expressions []byte) (Item, error) {
	var all Sum
	err := nfnetlink.EachAttribute(expressions, func(_ uint16, element []byte) error {
		expression, err := nfnetlink.ParseAttributes(element)
		if err != nil {
			return err
		}
		name, data := nfnetlink.Text(expression[unix.NFTA_EXPR_NAME]), expression[unix.NFTA_EXPR_DATA]
		if name == "counter" { // packets and bytes differ between namespaces
			data = nil
		}
		all.Add(name, string(data))
		return nil
	})
	label, known := l[comment]
	if !known {
		label = RuleLabel(comment)
		l[comment] = label
	}
	content := all.Sum()
	return Item{Label: label, Content: string(content[:])}, err
}

// ElementContent returns a key followed by its flags, which mark the end of a range.
func ElementContent(key, flags []byte) string {
	content := make([]byte, len(key)+flagsLength)
	copy(content, key)
	copy(content[len(key):], flags)
	return string(content)
}

// flagsLength is the length of NFTA_SET_ELEM_FLAGS.
const flagsLength = 4

func SortItems(items []Item) {
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Content, b.Content) })
}
