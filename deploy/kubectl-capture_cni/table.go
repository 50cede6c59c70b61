// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/install/report"
)

// table contains the rows of a text table, and the next steps for the rows.
type table struct {
	header []string
	rows   [][]string
	steps  []step
}

// step is a next step, and the subjects of the rows that need it.
type step struct {
	text     string
	subjects group[string]
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// next adds a next step for a subject. If the table already has the same step, next only adds the
// subject, because many rows can have the same cause. An empty text adds nothing.
func (t *table) next(subject, text string) {
	at := slices.IndexFunc(t.steps, func(s step) bool { return s.text == text })
	switch {
	case text == "":
	case at < 0:
		t.steps = append(t.steps, step{text, group[string]{subject}})
	case t.steps[at].subjects[0] != subject:
		t.steps[at].subjects = append(t.steps[at].subjects, subject)
	}
}

// maxSteps limits the number of printed steps. The output of -o json contains the steps of all
// findings.
const maxSteps = 5

// write writes the rows, with each column as wide as its widest cell, and then the next steps. It writes
// nothing if there are no rows.
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
		start, gap := 0, "" // column of the last cell, and the gap before it
		for i, cell := range row[:last] {
			fmt.Fprint(out, gap)
			writeState(out, cell)
			start, gap = start+widths[i]+2, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		writeLastCell(out, start, gap, row[last])
	}
	for _, step := range t.steps[:min(len(t.steps), maxSteps)] {
		fmt.Fprint(out, wrap("  ", "  "+furtherIndent, "next for "+step.subjects[0]+step.subjects.more()+": "+report.WithURLs(step.text)))
	}
	if more := len(t.steps) - maxSteps; more > 0 {
		fmt.Fprintf(out, "  and %d more next steps: -o json has them all\n", more)
	}
}

// leastColumns is the smallest width of a column in which a text is wrapped.
const leastColumns = 40

// writeLastCell writes gap, and then the last cell of a row, which begins in the column start. A long
// cell continues in that column on the next lines or, if fewer than leastColumns are left, below the
// row. It does not split words.
func writeLastCell(out io.Writer, start int, gap, cell string) {
	switch {
	case !strings.Contains(cell, " ") || start+utf8.RuneCountInString(cell) <= columns:
		fmt.Fprint(out, gap)
		writeState(out, cell)
		fmt.Fprintln(out)
	case columns-start < leastColumns:
		fmt.Fprint(out, "\n"+wrap(furtherIndent, furtherIndent, cell))
	default:
		indent := strings.Repeat(" ", start)
		fmt.Fprint(out, gap+wrap(indent, indent, cell)[start:])
	}
}

// writeBelow writes an empty line and the table, if it has rows.
func (t *table) writeBelow(out io.Writer) {
	if len(t.rows) > 0 {
		fmt.Fprintln(out)
		t.write(out)
	}
}

// write writes a result as JSON or YAML if the user chose one of these formats, and otherwise by the
// function text. It returns outcome or, if it can't write JSON or YAML, an error.
func write[T any](o *options, out io.Writer, result T, outcome error, text func(io.Writer, T)) error {
	if o.output == "json" || o.output == "yaml" {
		document, err := json.MarshalIndent(result, "", "  ")
		document = append(escape(document, o.output), '\n')
		if o.output == "yaml" && err == nil {
			document, err = yaml.JSONToYAML(document)
		}
		if err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		if _, err := out.Write(document); err != nil {
			return err
		}
	} else {
		text(out, result)
	}
	return outcome
}
