// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// table is text in columns.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes the columns, each as wide as its widest cell.
func (t *table) write(out io.Writer) {
	if len(t.rows) == 0 {
		return
	}
	rows := append([][]string{t.header}, t.rows...)
	widths := make([]int, len(t.header))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		last := len(row) - 1
		for last > 0 && row[last] == "" {
			last--
		}
		for i, cell := range row[:last+1] {
			writeState(out, cell)
			if i < last {
				fmt.Fprint(out, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		fmt.Fprintln(out)
	}
}

// writeObject writes a value as JSON or YAML, and reports whether that was asked for.
func (o *options) writeObject(out io.Writer, value any) (bool, error) {
	if o.output != "json" && o.output != "yaml" {
		return false, nil
	}
	document, err := json.MarshalIndent(value, "", "  ")
	document = append(escape(document, o.output), '\n')
	if o.output == "yaml" && err == nil {
		document, err = yaml.JSONToYAML(document)
	}
	if err != nil {
		return true, fmt.Errorf("writing the output: %w", err)
	}
	_, err = out.Write(document)
	return true, err
}
