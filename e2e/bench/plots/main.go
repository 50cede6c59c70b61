// SPDX-License-Identifier: Apache-2.0

// Command plots draws what make bench and make bench-cluster measured:
//
//	go run -C e2e/bench . -out ../../deploy/reference/numbers/results.json
//	go run ./e2e/cluster/startup -out deploy/reference/numbers/cluster.json
//	go run -C e2e/bench ./plots
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// directory has the results and gets the plots.
const directory = "../../deploy/reference/numbers"

// plot is a row of a table for each bar.
type plot struct {
	file, title string
	labels      []string // the first columns, whose cells name a bar; all but the last one name its group
	column      string   // of the values
	without     string   // what rows that are left out contain
}

var all = []plot{
	{"instead.svg", "One ADD, median in ms", []string{"INSTEAD OF"}, "p50 ms", ""},
	{"crowd.svg", "100 pods at once, all started, median in ms", []string{"AT ONCE"}, "ALL DONE p50 ms", "16 x"},
	{"calls.svg", "One call, median in ms", []string{"CALL"}, "p50 ms", "iptables"},
	{"startup.svg", "Start of one pod, median in ms, by runtime and API server", []string{"RUNTIME", "API SERVER", "CAPTURED BY"}, "p50 ms", "100 at once"},
}

// table is one that make bench printed.
type table struct {
	Columns []string
	Rows    [][]string
}

// bar is a value as it was printed, and as a number.
type bar struct {
	group, Name, Label, Text string
	value                    float64
}

func main() {
	if err := draw(); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func draw() error {
	var tables []table
	for _, name := range []string{"results.json", "cluster.json"} {
		content, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			return err
		}
		var results struct{ Tables []table }
		if err := json.Unmarshal(content, &results); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		tables = append(tables, results.Tables...)
	}
	for _, p := range all {
		bars, err := p.read(tables)
		if err == nil {
			err = p.save(bars)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
	}
	return nil
}

// read returns the bars by group, each from the smallest to the largest.
func (p plot) read(tables []table) (bars []bar, err error) {
	for _, t := range tables {
		column := slices.Index(t.Columns, p.column)
		if !slices.Equal(t.Columns[:min(len(p.labels), len(t.Columns))], p.labels) || column < 0 {
			continue
		}
		for _, row := range t.Rows {
			if p.without != "" && strings.Contains(strings.Join(row, ", "), p.without) {
				continue
			}
			value, err := strconv.ParseFloat(row[column], 64)
			if err != nil {
				return nil, err
			}
			last := len(p.labels) - 1
			bars = append(bars, bar{strings.Join(row[:last], ", "), strings.Join(row[:last+1], ", "), row[last], row[column], value})
		}
	}
	if len(bars) == 0 {
		return nil, fmt.Errorf("the results have no table %q with a column %q", p.labels, p.column)
	}
	slices.SortStableFunc(bars, func(a, b bar) int {
		return cmp.Or(strings.Compare(a.group, b.group), cmp.Compare(a.value, b.value))
	})
	return bars, nil
}
