// SPDX-License-Identifier: Apache-2.0

package report

import "strings"

// shellSafe contains the characters that have no special meaning in a word for a POSIX shell.
const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_+:,./=-"

// Command returns a command line for a POSIX shell that passes exactly these words to a program. The
// project uses it for every printed command with a word from the cluster, a file or a runtime, so that
// no such word can execute another command.
func Command(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		if quoted[i] = word; word == "" || strings.Trim(word, shellSafe) != "" {
			quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
