// SPDX-License-Identifier: Apache-2.0

package report

import "strings"

// SkewAdvice returns the next step if the message is of an agent that ended because it does not know a
// command or a flag, which means that chart and image are of different releases. For any other message,
// it returns "".
func SkewAdvice(message string) string {
	if !strings.Contains(message, `unknown command "`) && !strings.Contains(message, "unknown flag: ") {
		return ""
	}
	return "chart and image are of different releases: upgrade with --set image.tag= --set image.digest= and without images of pools, " +
		"or use the chart of the image's release"
}
