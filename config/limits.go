// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
)

// These limits shorten values in messages, because a pod's author or, with Multus, a namespace's
// user wrote them.
const (
	maxNamed = 5   // faults or warnings of one kind; a message counts the rest
	maxShown = 128 // bytes of a value in a message
)

// Shortened returns a value, cut to at most maxShown bytes.
func Shortened(value string) string {
	if len(value) <= maxShown {
		return value
	}
	return strings.ToValidUTF8(value[:maxShown], "") + "…"
}

// Quoted returns the shortened value in quotes, with control characters escaped.
func Quoted(value string) string { return strconv.Quote(Shortened(value)) }

// Few returns the first lines and, in place of the rest, one line with their number, such as "5
// more elements are faulty". The argument what is "elements are faulty" in this example.
func Few(lines []string, what string) []string {
	if len(lines) <= maxNamed {
		return lines
	}
	return append(lines[:maxNamed:maxNamed], fmt.Sprintf("%d more %s", len(lines)-maxNamed, what))
}
