// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/tables"
)

// readResults reads what make bench and make bench-cluster wrote for a document.
// Its Machine is a list of the files with their dates and machines.
func readResults(t *testing.T) (all tables.Results) {
	t.Helper()
	for _, name := range []string{"cluster.json", "results.json"} {
		var measured tables.Results
		if err := json.Unmarshal([]byte(read(t, "deploy/reference/numbers/"+name)), &measured); err != nil {
			t.Fatal(err)
		}
		measured.Tables = append(measured.Tables, all.Tables...)
		measured.Machine = fmt.Sprintf("- [%s](numbers/%[1]s): %s, %s\n", name, measured.Date, measured.Machine) + all.Machine
		all = measured
	}
	return all
}

// resultTable returns some columns of the tables that have them all, without the rows of
// which a cell matches an expression. A document needs at least a row.
func resultTable(t *testing.T, r tables.Results, without string, columns ...string) string {
	t.Helper()
	dropped := regexp.MustCompile("^(" + without + ")")
	text, count := "| "+strings.Join(columns, " | ")+" |\n|"+strings.Repeat("---|", len(columns))+"\n", 0
	for _, table := range r.Tables {
		indices := make([]int, len(columns))
		for i, column := range columns {
			indices[i] = slices.Index(table.Columns, column)
		}
		if slices.Contains(indices, -1) {
			continue
		}
		for _, row := range table.Rows {
			if without != "" && slices.ContainsFunc(row, dropped.MatchString) {
				continue
			}
			count++
			for _, index := range indices {
				text += "| " + row[index] + " "
			}
			text += "|\n"
		}
	}
	if count == 0 {
		t.Errorf("the results have no table with the columns %q", columns)
	}
	return text
}

// TestPlots expects each plot to have a bar for each of the results, with its value. In a
// group, the bars are sorted. Those of Istio have a colour of their own, and both kinds have
// another one in the dark.
func TestPlots(t *testing.T) {
	for plot, columns := range map[string][]string{
		"instead": {"INSTEAD OF", "p50 ms"}, "calls": {"CALL", "p50 ms"}, "crowd": {"AT ONCE", "ALL DONE p50 ms"},
		"startup": {"RUNTIME", "API SERVER", "CAPTURED BY", "p50 ms"},
	} {
		drawn := html.UnescapeString(read(t, "deploy/reference/numbers/"+plot+".svg"))
		without := map[string]string{"calls": "iptables", "crowd": "16 x", "startup": "100"}[plot]
		rows := strings.Split(resultTable(t, readResults(t), without, columns...), "\n")
		rows = rows[2 : len(rows)-1]
		bars := drawnBar.FindAllStringSubmatch(drawn, -1)
		if len(bars) != len(rows) {
			t.Errorf("%s.svg has %d bars, want %d", plot, len(bars), len(rows))
		}
		for _, row := range rows {
			cells := strings.Split(strings.Trim(row, "| "), " | ")
			last := len(cells) - 1
			if want := "<title>" + strings.Join(cells[:last], ", ") + ": " + cells[last] + "</title>"; !strings.Contains(drawn, want) {
				t.Errorf("%s.svg has no bar %q: draw it again with `go run -C e2e/bench ./plots`", plot, want)
			}
		}
		group, before := "", 0.0
		for _, bar := range bars {
			name, text, label, class, shown := bar[1], bar[2], bar[3], bar[4], bar[5]
			value, err := strconv.ParseFloat(text, 64)
			if err != nil || text != shown {
				t.Errorf("%s.svg: the bar %s shows %q, want %q (%v)", plot, name, shown, text, err)
			}
			if in := strings.TrimSuffix(name, label); in == group && value < before {
				t.Errorf("%s.svg: the bar %s is after a longer one", plot, name)
			} else {
				group, before = in, value
			}
			if theirs := strings.Contains(label, "istio"); theirs != (class == "theirs") || strings.Contains(label, "capture-cni") && class != "ours" {
				t.Errorf("%s.svg: the bar %s has the colour of %s", plot, name, class)
			}
		}
		light, dark, found := strings.Cut(drawn, "@media (prefers-color-scheme: dark)")
		for _, class := range []string{".ours {", ".theirs {", ".page {", "text {"} {
			if !found || !strings.Contains(light, class) || !strings.Contains(dark, class) {
				t.Errorf("%s.svg has no colour of %q for each scheme", plot, class)
			}
		}
	}
}

// drawnBar is a bar with its name, its value, its label, its class and the value that it shows.
var drawnBar = regexp.MustCompile(`<g .*><title>(.*): ([0-9.]+)</title>\n<text .*>(.*)</text>\n<rect .*class="(\w+)"/>\n<text .*>(.*)</text>\n</g>`)

// TestReadmeFigures expects the figures of README.md to be those of the results.
func TestReadmeFigures(t *testing.T) {
	readme := read(t, "README.md")
	one := []string{"capture-cni, nftables", "istio-cni, nftables", "istio-init's program, nftables"}
	crowd := []string{"100 x ptp, capture-cni", "100 x ptp, istio-cni with nftables"}
	for _, tt := range []struct {
		row, first, column, unit string
		measured                 []string
	}{
		{"median time of a capture", "INSTEAD OF", "p50 ms", " ms", one},
		{"CPU time of a capture", "INSTEAD OF", "CPU ms", " ms", one},
		{"programs started", "INSTEAD OF", "PROGRAMS", "", one},
		{"API requests for a meshed pod", "INSTEAD OF", "REQUESTS", "", one},
		{"network setup of 100 pods, relative to no capture", "AT ONCE", "x FIRST", "", crowd},
	} {
		want := "\n| " + tt.row
		table := resultTable(t, readResults(t), "", tt.first, tt.column)
		for _, name := range tt.measured {
			_, figure, _ := strings.Cut(table, "\n| "+name+" | ")
			figure, _, _ = strings.Cut(figure, " |")
			want += " | " + figure + tt.unit
		}
		if !strings.Contains(readme, want) {
			t.Errorf("README.md has no row%s", want)
		}
	}
}
