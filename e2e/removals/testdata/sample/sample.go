// SPDX-License-Identifier: Apache-2.0

// Package sample has one removal of each kind that its test notices, and one that it does
// not.
package sample

type pair struct {
	Seen, Unseen string
}

var pointer = &[]string{"not a removal"}

func statements() (a, b int) {
	a = 1
	b = 2
	return a, b
}

func branches(n int) int {
	if n == 1 {
		n = 10
	}
	if n == 2 {
		n = 20
	}
	return n
}

func operands(a, b bool) bool { return a && b }

func cases(s string) int {
	switch s {
	case "seen":
		return 1
	case "unseen":
		return 2
	}
	return 0
}

func elements() ([]string, map[string]int) {
	return []string{"seen", "unseen"}, map[string]int{"seen": 1, "unseen": 2}
}

func fields() pair { return pair{Seen: "a", Unseen: "b"} }

func notRun() *[]string {
	pointer = nil
	return pointer
}
