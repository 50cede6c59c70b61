// SPDX-License-Identifier: Apache-2.0

package sample

import "testing"

func TestSample(t *testing.T) {
	a, _ := statements()
	list, entries := elements()
	if a != 1 || branches(1) != 10 || branches(2) == 0 || operands(false, true) || !operands(true, true) || cases("seen") != 1 || cases("unseen") == 1 ||
		list[0] != "seen" || entries["seen"] != 1 || fields().Seen != "a" {
		t.Error("a removal is noticed")
	}
}
