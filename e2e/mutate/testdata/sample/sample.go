// SPDX-License-Identifier: Apache-2.0

// Package sample has one mutant of each kind that its test notices, and one that it does
// not.
package sample

import "time"

type pair struct {
	Seen, Unseen string
}

var pointer = &[]string{"not a mutant"}

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

func boundaries(n int) (seen, unseen bool) { return n < 3, n >= 5 }

func computations(n uint8, s string) (uint8, uint8, string) {
	return n*2 + 1, (n - 1) / 1, s + "!"
}

func constants() (seen, unseen time.Duration) { return 3 * time.Second, -4 * time.Second }

func counts(list []int) (n, unseen int) {
	for i := 0; i < len(list); i++ {
		n++
		unseen--
	}
	return n, unseen
}

func signs(n int) (seen, unseen int) { return -n, -n % 1 }

func returned() (n int) {
	n = 3
	return 0
}
