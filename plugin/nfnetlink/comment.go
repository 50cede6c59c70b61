// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"bytes"
	"cmp"

	"golang.org/x/sys/unix"
)

// Comment returns the text from the prefix's first occurrence in content to the next NUL, or "". So it
// finds a comment with this prefix, because all backends store a comment as text that ends with a NUL.
func Comment(content []byte, prefix string) string {
	start := bytes.Index(content, []byte(prefix))
	if start < 0 {
		return ""
	}
	return UntilNUL(content[start:])
}

// FindComment returns the first comment with this prefix in a chain, or "".
func FindComment(r *Reader, family byte, table, chain, prefix string) (string, error) {
	l := Listing{Family: family, Chain: chain, Limit: MaxOurRules, Bytes: MaxOurBytes}
	return First(ListRules(r, l, table, func(_ string, rule Attributes) ([]string, error) {
		text := cmp.Or(Comment(rule[unix.NFTA_RULE_EXPRESSIONS], prefix), Comment(rule[unix.NFTA_RULE_USERDATA], prefix))
		if text == "" {
			return nil, nil
		}
		return []string{text}, nil
	}))
}
