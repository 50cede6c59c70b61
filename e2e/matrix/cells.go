// SPDX-License-Identifier: Apache-2.0

package main

// cell is a combination of versions that the other tests don't have.
type cell struct {
	name  string
	parts map[string]string // modules below e2e/parts, in the place of these
	build []string          // arguments of make
	env   []string          // of make
	tests [][]string        // arguments of go test
}

// oldKubernetes is built by the Go that its release was built by.
var oldKubernetes = []string{"GOTOOLCHAIN=go1.23.10"}

// cells are all of them.
var cells = []cell{
	{
		name:  "kubernetes-1.30",
		parts: map[string]string{"kubernetes": "kubernetes-1.30"},
		build: []string{"bin/parts/kubernetes", "bin/parts/kubectl"},
		env:   oldKubernetes,
		tests: [][]string{{"./e2e/cluster/pods", "./e2e/cluster/agents"}},
	},
}
