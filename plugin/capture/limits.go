// SPDX-License-Identifier: Apache-2.0

package capture

import "strconv"

// maxQuoted is how much of a value a message repeats, in bytes.
const maxQuoted = 64

// quoted is for a message: a value that a pod's author chose, in quotes and cut.
func quoted(value string) string {
	if len(value) > maxQuoted {
		return strconv.Quote(value[:maxQuoted]) + "…"
	}
	return strconv.Quote(value)
}
