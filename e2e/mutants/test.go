// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
)

// test is a test, or one case of a test.
type test struct {
	pkg, name string // "plugin/capture", "TestRules/empty_list"
	cost      cost
	args      string // one flag of the package's own
}

type cost int

const (
	unit cost = iota // needs no root
	root             // makes network namespaces, files of other users or nodes
)

// by returns the test that must fail.
func by(cost cost, pkg, name string) test { return test{pkg: pkg, name: name, cost: cost} }

// admission returns a test on an API server without nodes.
func admission(name string) test {
	return test{pkg: "e2e/cluster/pods", name: name, cost: root, args: "-control"}
}

func (t test) String() string { return t.name + " of ./" + t.pkg }

// key names the test in results.
func (t test) key() string { return module + "/" + t.pkg + " " + t.name }

// arguments returns those of go test for some tests of one group.
func arguments(tests ...test) []string {
	var names [][]string // of each level of cases
	for _, t := range tests {
		for level, name := range strings.Split(t.name, "/") {
			if level == len(names) {
				names = append(names, nil)
			}
			names[level] = append(names[level], name)
		}
	}
	patterns := make([]string, len(names))
	for level, alternatives := range names {
		patterns[level] = "^(" + strings.Join(slices.Compact(slices.Sorted(slices.Values(alternatives))), "|") + ")$"
	}
	args := []string{"-run=" + strings.Join(patterns, "/"), "."}
	if flag := tests[0].args; flag != "" {
		args = append(args, "-args", flag)
	}
	return args
}

// group is what tests have in common that one run of go test executes. A pattern of
// cases would leave out those of a test that has no case in it.
type group struct {
	pkg, args string
	depth     int
	alone     bool
}

func (t test) group() group {
	return group{t.pkg, t.args, strings.Count(t.name, "/"), t.cost == root}
}
