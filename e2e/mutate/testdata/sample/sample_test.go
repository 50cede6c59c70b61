// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"os"
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

// TestBusy fails by itself when it tries a mutant for the first time.
func TestBusy(t *testing.T) {
	isFirst := os.Getenv("MUTANT") != "" && os.Mkdir(os.TempDir()+"/busy", 0o700) == nil
	if isFirst || returned() != 0 {
		t.Error("a mutant is noticed")
	}
}
