// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// results are what make bench wrote for a document.
type results struct {
	Date, Machine string
	Tables        []struct {
		Columns []string
		Rows    [][]string
	}
}

func readResults(t *testing.T) (r results) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "deploy/reference/numbers/results.json")), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r results) machine() string { return r.Date + ", " + r.Machine + "\n" }

// table returns some columns of the results' table that has them all, without the rows
// whose label begins with a prefix.
func (r results) table(without string, columns ...string) string {
	table := "|" + strings.Join(columns, "|") + "|\n|" + strings.Repeat("---|", len(columns)) + "\n"
	for _, found := range r.Tables {
		indices := make([]int, len(columns))
		for i, column := range columns {
			indices[i] = slices.Index(found.Columns, column)
		}
		if slices.Contains(indices, -1) {
			continue
		}
		for _, row := range found.Rows {
			if without != "" && strings.HasPrefix(row[0], without) {
				continue
			}
			for _, index := range indices {
				table += "|" + row[index]
			}
			table += "|\n"
		}
	}
	return table
}
