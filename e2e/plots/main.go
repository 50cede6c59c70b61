// SPDX-License-Identifier: Apache-2.0

// Command plots draws what make bench measured, from the results that it wrote:
//
//	go run ./e2e/bench -out deploy/reference/numbers/results.json
//	go -C e2e/plots run .
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// directory has the results and gets the plots.
const directory = "../../deploy/reference/numbers"

// bars are a plot: a row of a table is a bar.
type bars struct {
	file, title   string
	table, column string // the table's first column, and that of the values
	rows          func(label string) bool
}

var all = []bars{
	{"instead.svg", "One ADD, median in ms", "INSTEAD OF", "p50 ms", any},
	{"crowd.svg", "100 pods at once, all started, median in ms", "AT ONCE", "ALL DONE p50 ms", func(label string) bool { return strings.HasPrefix(label, "100 x ") }},
	{"calls.svg", "One call, median in ms", "CALL", "p50 ms", func(label string) bool { return !strings.HasPrefix(label, "iptables") }},
}

func any(string) bool { return true }

// table is one that make bench printed.
type table struct {
	Columns []string
	Rows    [][]string
}

func main() {
	if err := draw(); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func draw() error {
	content, err := os.ReadFile(filepath.Join(directory, "results.json"))
	if err != nil {
		return err
	}
	var results struct{ Tables []table }
	if err := json.Unmarshal(content, &results); err != nil {
		return fmt.Errorf("reading the results: %w", err)
	}
	for _, b := range all {
		labels, values, err := b.read(results.Tables)
		if err == nil {
			err = b.save(labels, values)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", b.file, err)
		}
	}
	return nil
}

// read returns the bars from the lowest to the highest on the page.
func (b bars) read(tables []table) (labels []string, values plotter.Values, err error) {
	for _, t := range tables {
		column := slices.Index(t.Columns, b.column)
		if t.Columns[0] != b.table || column < 0 {
			continue
		}
		for _, row := range t.Rows {
			if !b.rows(row[0]) {
				continue
			}
			value, err := strconv.ParseFloat(row[column], 64)
			if err != nil {
				return nil, nil, err
			}
			labels, values = append(labels, row[0]+", "+row[column]+room), append(values, value)
		}
	}
	if len(values) == 0 {
		return nil, nil, fmt.Errorf("the results have no table %q with a column %q", b.table, b.column)
	}
	slices.Reverse(labels)
	slices.Reverse(values)
	return labels, values, nil
}

// The room after a label is for fonts that are wider than the one that it is measured by.
const (
	font  = "Liberation Sans"
	fonts = font + ",Arial,Helvetica,sans-serif"
	room  = "            "
)

// Both can be read on a white and on a black page.
var (
	ink  = color.Gray{128}
	fill = color.RGBA{R: 70, G: 130, B: 200, A: 255}
)

func (b bars) save(labels []string, values plotter.Values) error {
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.Title.TextStyle.Color = b.title, ink
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color, axis.Tick.Label.Color = ink, ink, ink
	}
	chart, err := plotter.NewBarChart(values, vg.Points(14))
	if err != nil {
		return err
	}
	chart.Horizontal, chart.Color, chart.LineStyle.Width = true, fill, 0
	p.Add(chart)
	p.NominalY(labels...)
	p.X.Min, p.X.Max = 0, 1.05*slices.Max(values)
	image, err := p.WriterTo(20*vg.Centimeter, vg.Length(len(labels))*0.75*vg.Centimeter+2*vg.Centimeter, "svg")
	if err != nil {
		return err
	}
	var content bytes.Buffer
	if _, err := image.WriteTo(&content); err != nil {
		return err
	}
	_, drawing, _ := bytes.Cut(content.Bytes(), []byte("-->\n")) // without the names of the programs that wrote it
	drawing = bytes.ReplaceAll(drawing, []byte("font-family:"+font), []byte("font-family:"+fonts))
	return os.WriteFile(filepath.Join(directory, b.file), append([]byte("<!-- SPDX-License-Identifier: Apache-2.0 -->\n"), drawing...), 0o644)
}
