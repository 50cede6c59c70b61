// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one way to break the product.
type mutant struct {
	name     string // the harm, in words joined by dashes
	file     string // below the project's root
	from, to string // from occurs once in the file
	by       test   // fails, if the mutant is in the product
}

// table returns all mutants.
func table() []mutant {
	return slices.Concat(
		namespaceMutants, ruleMutants, pluginMutants, netfilterMutants, agentMutants, guardMutants, updateMutants, chartMutants,
		policyMutants, guideMutants,
	)
}

// apply returns the content of the mutant's file with the mutation.
func (m mutant) apply(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if count := strings.Count(string(content), m.from); count != 1 {
		return "", fmt.Errorf("%s contains the text %d times, expected once: %q", m.file, count, m.from)
	}
	return strings.Replace(string(content), m.from, m.to, 1), nil
}
