// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// table is text in columns.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes the columns, each as wide as its widest cell. paint colours a padded cell.
func (t *table) write(out io.Writer, paint func(text string) string) {
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
		var line strings.Builder
		for i, cell := range row {
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			line.WriteString(paint(cell) + padding + "  ")
		}
		fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
}

// printable replaces what could control the terminal: reasons quote files of nodes, and
// explanations quote annotations of pods.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// painter returns a function that colours words for states if out is a terminal.
func painter(out io.Writer) func(text string) string {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) || os.Getenv("NO_COLOR") != "" {
		return func(text string) string { return text }
	}
	return paint
}

// paint colours a word for a state.
func paint(text string) string {
	const green, yellow, red, end = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
	switch text {
	case "ready", "removed", "captured", "ok", "passed":
		return green + text + end
	case "waiting", "unreported", "unknown", "outdated", "changed", "foreign", "exempt", "note", "skipped":
		return yellow + text + end
	case "faulty", "stale", "no agent", "uncaptured", "injected_later", "drifted", "obstructed", "not examined", "not started", "problem", "failed":
		return red + text + end
	}
	return text
}

// writeObject writes a value as JSON or YAML, and reports whether that was asked for.
func (o *options) writeObject(out io.Writer, value any) (bool, error) {
	var document []byte
	var err error
	switch o.output {
	case "json":
		document, err = json.MarshalIndent(value, "", "  ")
		document = append(document, '\n')
	case "yaml":
		document, err = yaml.Marshal(value)
	default:
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("writing the output: %w", err)
	}
	_, err = out.Write(document)
	return true, err
}
