// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// Limits on what messages repeat: with Multus, a namespace's user may write the
// entry.
const (
	maxNamed = 10  // of one kind of fault or warning; the rest is counted
	maxShown = 128 // bytes of a value
)

func shortened(value string) string {
	if len(value) <= maxShown {
		return value
	}
	return strings.ToValidUTF8(value[:maxShown], "") + "…"
}

// few names the first lines of one kind and counts the rest, which is more of what.
func few(lines []string, what string) []string {
	if len(lines) <= maxNamed {
		return lines
	}
	return append(lines[:maxNamed:maxNamed], fmt.Sprintf("%d more %s", len(lines)-maxNamed, what))
}
