// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
)

// These limits keep messages short, because the author of a pod or, with Multus, a user of a namespace
// can write long values.
const (
	maxNamed = 5   // faults or warnings of one kind; a message counts the rest
	maxShown = 128 // bytes of a value in a message
)

// Shortened returns a value unchanged, or its first maxShown bytes with an ellipsis.
func Shortened(value string) string {
	if len(value) <= maxShown {
		return value
	}
	return strings.ToValidUTF8(value[:maxShown], "") + "…"
}

// Quoted returns the shortened value in quotes, with control characters escaped.
func Quoted(value string) string { return strconv.Quote(Shortened(value)) }

// Few returns the first maxNamed lines and, instead of the others, one line with their number, such as
// "5 more elements are faulty", for which the argument what is "elements are faulty".
func Few(lines []string, what string) []string {
	if len(lines) <= maxNamed {
		return lines
	}
	return append(lines[:maxNamed:maxNamed], fmt.Sprintf("%d more %s", len(lines)-maxNamed, what))
}
