// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits on what a message repeats of values that a pod's author or, with Multus,
// a namespace's user wrote.
const (
	maxNamed = 5   // faults or warnings of one kind; the rest are counted
	maxShown = 128 // bytes of a value
)

// Shortened returns a value, cut to a length that is fit for a message.
func Shortened(value string) string {
	if len(value) <= maxShown {
		return value
	}
	return strings.ToValidUTF8(value[:maxShown], "") + "…"
}

// Quoted returns the shortened value in quotes, with control characters escaped.
func Quoted(value string) string { return strconv.Quote(Shortened(value)) }

// Few returns the first lines and, in place of the rest, one line with their
// number: "5 more elements are faulty", where what is "elements are faulty".
func Few(lines []string, what string) []string {
	if len(lines) <= maxNamed {
		return lines
	}
	return append(lines[:maxNamed:maxNamed], fmt.Sprintf("%d more %s", len(lines)-maxNamed, what))
}
