// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
)

// TestExceptions takes a mutant by its name and others by the start of theirs out of an
// outcome, and expects the exceptions that are none.
func TestExceptions(t *testing.T) {
	e, err := parseExceptions("# a comment\na.f | branch: x == 1 | equal\na.f | field: * | only printed\na.g | * | root\nb.f | * | another package\n")
	if err != nil {
		t.Fatal(err)
	}
	mutants := func(names ...string) (list []mutant) {
		for _, name := range names {
			list = append(list, mutant{kind: name, function: "a.f", text: "x == 1"})
		}
		return list
	}
	o := outcome{lived: mutants("branch", "operand"), unreached: mutants("field", "field")}
	excepted, stale := e.apply(&o, &source{path: "github.com/capture-cni/capture-cni/a"})
	if excepted != 3 || len(o.lived) != 1 || len(o.unreached) != 0 || !slices.Equal(stale, []string{"a.g | *"}) {
		t.Errorf("%d are excepted, %v and %v are left, stale are %q", excepted, o.lived, o.unreached, stale)
	}
	for _, text := range []string{"a.f | equal\n", "b.f | * | x\na.f | * | x\n", "a.f | * | x\na.f | * | y\n"} {
		if _, err := parseExceptions(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if _, err := parseExceptions(exceptionList); err != nil {
		t.Error(err)
	}
}
