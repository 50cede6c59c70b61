// SPDX-License-Identifier: Apache-2.0

package record

import "strings"

// TraceOf returns the trace's id in a traceparent, or "" if the traceparent is not valid.
// https://www.w3.org/TR/trace-context/#traceparent-header-field-values
func TraceOf(parent string) string {
	fields := strings.Split(parent, "-") // later versions may append fields
	if len(fields) < 4 || !isID(fields[2], 16) || !isHex(fields[0]+fields[3], 4) || len(fields[0]) != 2 ||
		fields[0] == "ff" || fields[0] == "00" && len(fields) > 4 || !IsTrace(fields[1]) {
		return ""
	}
	return fields[1]
}

// IsTrace reports whether a text is the id of a trace.
func IsTrace(id string) bool { return isID(id, 32) }

func isID(text string, digits int) bool { return isHex(text, digits) && strings.Trim(text, "0") != "" }

func isHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}
