// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// coverage counts which action came before which in a sequence.
type coverage map[[2]string]int

func (c *coverage) add(s sequence) {
	if *c == nil {
		*c = coverage{}
	}
	for i, second := range s.actions {
		for _, first := range s.actions[:i] {
			(*c)[[2]string{first.kind.name, second.kind.name}]++
		}
	}
}

// missing are the pairs that did not occur.
func (c *coverage) missing() (pairs []string) {
	for _, first := range allKinds {
		for _, second := range allKinds {
			if (*c)[[2]string{first.name, second.name}] == 0 {
				pairs = append(pairs, first.name+" / "+second.name)
			}
		}
	}
	slices.Sort(pairs)
	return pairs
}

func (c *coverage) String() string {
	missing, all := c.missing(), len(allKinds)*len(allKinds)
	text := fmt.Sprintf("%d of %d ordered pairs of actions occurred", all-len(missing), all)
	if len(missing) > 0 {
		text += ", not " + strings.Join(missing, "; ")
	}
	return text
}

// check wants nearly all pairs.
func (c *coverage) check(t *testing.T) {
	t.Helper()
	if all := len(allKinds) * len(allKinds); len(c.missing())*10 > all {
		t.Errorf("only %d of %d pairs of actions occurred", all-len(c.missing()), all)
	}
}
