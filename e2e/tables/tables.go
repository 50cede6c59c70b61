// SPDX-License-Identifier: Apache-2.0

// Package tables prints what was measured, and keeps it for a document.
package tables

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// Tables are the tables of a run.
type Tables struct{ printed []Table }

// Table has the texts of its cells.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Results are what a run wrote to a file.
type Results struct {
	Date, Machine string
	Tables        []Table
}

// Print aligns columns that are separated by tabs, and keeps them for Write. The first line
// names the columns.
func (t *Tables) Print(lines ...string) error {
	kept := Table{Columns: strings.Split(lines[0], "\t")}
	for _, line := range lines[1:] {
		kept.Rows = append(kept.Rows, strings.Split(line, "\t"))
	}
	t.printed = append(t.printed, kept)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintln(out)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

// Write writes all tables to a file, with the date and the machine.
func (t *Tables) Write(file string) error {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	processors, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	model := "unknown processor"
	if found := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(processors); found != nil {
		model = string(found[1])
	}
	content, err := json.MarshalIndent(Results{
		time.Now().UTC().Format(time.DateOnly),
		fmt.Sprintf("%d x %s, Linux %s", runtime.NumCPU(), model, bytes.TrimSpace(release)), t.printed,
	}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644)
}
