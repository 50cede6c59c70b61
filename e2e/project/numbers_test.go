// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"html"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/tables"
)

// readResults reads what make bench and make bench-cluster wrote for a document.
func readResults(t *testing.T) (all tables.Results) {
	t.Helper()
	for _, name := range []string{"cluster", "results"} {
		var measured tables.Results
		if err := json.Unmarshal([]byte(read(t, "deploy/reference/numbers/"+name+".json")), &measured); err != nil {
			t.Fatal(err)
		}
		measured.Tables = append(measured.Tables, all.Tables...)
		all = measured
	}
	return all
}

// resultTable returns some columns of the tables that have them all, without the rows of
// which a cell begins with a prefix. A document needs at least a row.
func resultTable(t *testing.T, r tables.Results, without string, columns ...string) string {
	t.Helper()
	text, count := "|"+strings.Join(columns, "|")+"|\n|"+strings.Repeat("---|", len(columns))+"\n", 0
	for _, table := range r.Tables {
		indices := make([]int, len(columns))
		for i, column := range columns {
			indices[i] = slices.Index(table.Columns, column)
		}
		if slices.Contains(indices, -1) {
			continue
		}
		for _, row := range table.Rows {
			if without != "" && slices.ContainsFunc(row, func(cell string) bool { return strings.HasPrefix(cell, without) }) {
				continue
			}
			count++
			for _, index := range indices {
				text += "|" + row[index]
			}
			text += "|\n"
		}
	}
	if count == 0 {
		t.Errorf("the results have no table with the columns %q", columns)
	}
	return text
}

// TestPlots expects each plot to be of the results.
func TestPlots(t *testing.T) {
	for plot, columns := range map[string][]string{
		"instead": {"INSTEAD OF", "p50 ms"}, "calls": {"CALL", "p50 ms"}, "crowd": {"AT ONCE", "ALL DONE p50 ms"},
		"startup": {"RUNTIME", "API SERVER", "CAPTURED BY", "p50 ms"},
	} {
		drawn := html.UnescapeString(read(t, "deploy/reference/numbers/"+plot+".svg"))
		without := map[string]string{"calls": "iptables", "crowd": "16 x", "startup": "100"}[plot]
		rows := strings.Split(resultTable(t, readResults(t), without, columns...), "\n")
		for _, row := range rows[2 : len(rows)-1] {
			label := ">" + strings.ReplaceAll(strings.Trim(row, "|"), "|", ", ") + " "
			if !strings.Contains(drawn, label) {
				t.Errorf("%s.svg has no bar %q: draw it again with `go run -C e2e/bench ./plots`", plot, label[1:])
			}
		}
	}
}
