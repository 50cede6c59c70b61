// SPDX-License-Identifier: Apache-2.0

package report

import "strings"

// shellSafe are the characters that a POSIX shell takes literally anywhere in a word.
const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+:,./=-"

// Command returns a command line for a POSIX shell that passes exactly these words to a
// program. Every command that the project prints with a word of the cluster, of a file or of
// a runtime is made here, so that no such word becomes a command of its own.
func Command(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if quoted[i] = word; word == "" || strings.Trim(word, shellSafe) != "" {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
