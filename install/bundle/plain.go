// SPDX-License-Identifier: Apache-2.0

package bundle

import "strings"

const (
	maxPlain        = 256
	plainCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+~:/@*()[], "
)

// Plain returns a name, a version, a path or a number unchanged, and a placeholder
// for any other text: its author may have put a secret into a field of such a form.
func Plain(text string) string {
	if len(text) > maxPlain || strings.Trim(text, plainCharacters) != "" {
		return "(not of the expected form, not shown)"
	}
	return text
}
