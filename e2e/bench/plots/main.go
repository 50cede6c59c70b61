// SPDX-License-Identifier: Apache-2.0

// Command plots draws what make bench and make bench-cluster measured:
//
//	go run -C e2e/bench . -out ../../deploy/reference/numbers/results.json
//	go run ./e2e/cluster/startup -out deploy/reference/numbers/cluster.json
//	go run -C e2e/bench ./plots
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
	file, title string
	labels      []string // the first columns, whose cells name a bar
	column      string   // of the values
	without     string   // what rows that are left out contain
}

var all = []bars{
	{"instead.svg", "One ADD, median in ms", []string{"INSTEAD OF"}, "p50 ms", ""},
	{"crowd.svg", "100 pods at once, all started, median in ms", []string{"AT ONCE"}, "ALL DONE p50 ms", "16 x"},
	{"calls.svg", "One call, median in ms", []string{"CALL"}, "p50 ms", "iptables"},
	{"startup.svg", "Start of one pod, median in ms", []string{"RUNTIME", "API SERVER", "CAPTURED BY"}, "p50 ms", "100 at once"},
}

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
	for _, b := range all {
		labels, values, err := b.read(tables)
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
		if !slices.Equal(t.Columns[:min(len(b.labels), len(t.Columns))], b.labels) || column < 0 {
			continue
		}
		for _, row := range t.Rows {
			if b.without != "" && strings.Contains(strings.Join(row, ", "), b.without) {
				continue
			}
			label := strings.Join(row[:len(b.labels)], ", ")
			value, err := strconv.ParseFloat(row[column], 64)
			if err != nil {
				return nil, nil, err
			}
			labels, values = append(labels, label+", "+row[column]+room), append(values, value)
		}
	}
	if len(values) == 0 {
		return nil, nil, fmt.Errorf("the results have no table %q with a column %q", b.labels, b.column)
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
