// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"testing"
	"time"
)

func TestSample(t *testing.T) {
	a, _ := statements()
	list, entries := elements()
	if a != 1 || branches(1) != 10 || branches(2) == 0 || operands(false, true) || !operands(true, true) || cases("seen") != 1 || cases("unseen") == 1 ||
		list[0] != "seen" || entries["seen"] != 1 || fields().Seen != "a" {
		t.Error("a mutant is noticed")
	}
}

func TestOperators(t *testing.T) {
	below, above := boundaries(3)
	computed, _, text := computations(3, "a")
	constant, _ := constants()
	counted, _ := counts([]int{1, 2})
	negative, _ := signs(3)
	if below || above || computed != 7 || text != "a!" || constant != 3*time.Second || counted != 2 || negative != -3 {
		t.Error("a mutant is noticed")
	}
}
