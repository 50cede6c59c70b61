// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits on what messages repeat of a value that a pod's author or, with Multus,
// a namespace's user chose.
const (
	maxNamed = 10 // faults or warnings of one kind; the rest is counted
	maxShown = 64 // bytes of a value
)

// Shortened returns a value as a message shows it.
func Shortened(value string) string {
	if len(value) <= maxShown {
		return value
	}
	return strings.ToValidUTF8(value[:maxShown], "") + "…"
}

// Quoted returns a value as a message shows it, in Go's quotes.
func Quoted(value string) string { return strconv.Quote(Shortened(value)) }

// Few returns the first lines of one kind and counts the rest, which is more of what.
func Few(lines []string, what string) []string {
	if len(lines) <= maxNamed {
		return lines
	}
	return append(lines[:maxNamed:maxNamed], fmt.Sprintf("%d more %s", len(lines)-maxNamed, what))
}
