// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// finding identifies nodes, or pods, that an operator would treat in the same way, because they have the
// same state, mesh and cause.
type finding struct{ state, mesh, cause string }

func findingOfNode(n fleet.Node) finding {
	return finding{state: string(n.State), cause: causeClass(n.Findings.Summary(), n.Agent, n.Name)}
}

func findingOfPod(p fleet.Pod) finding {
	return finding{string(p.State), string(p.Mesh), causeClass(causeOf(p), p.Namespace+"/"+p.Name, p.Name)}
}

// causeOf returns the cause in a pod's row: the failure of a pod that does not start, or the cause of an
// exempt pod's exemption. For other pods, it returns "", because their state is the whole cause.
func causeOf(p fleet.Pod) string {
	if p.State == report.NotStarted {
		return cmp.Or(strings.ReplaceAll(p.Failure, "\n", "; "), "unknown")
	}
	return string(p.Cause)
}

// varying matches the parts of a cause that differ between two reports of the same fault: times,
// durations, UIDs and other ids, addresses, and names of pods.
var varying = regexp.MustCompile(strings.Join([]string{
	`\b\d{4}-\d\d-\d\d[T ][0-9:.]+(Z|[-+]\d\d:\d\d)?`,
	`\b(\d+(\.\d+)?(ns|µs|ms|h|m|s))+\b`,
	`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`,
	`\b[0-9a-f]{12,64}\b`,
	`\[?[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}\b(\]:\d+)?`,
	`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b`,
	`\b[Pp]od "?[a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*`,
}, "|"))

// causeClass replaces in a cause the subject's own names, and all varying parts, by *. So the same cause
// of two subjects becomes the same text.
func causeClass(cause string, names ...string) string {
	cause = printable(cause) // makes the text valid UTF-8, which a regular expression needs
	for _, name := range names {
		if name = printable(name); name != "" {
			cause = regexp.MustCompile(`(^|[^-a-z0-9.])`+regexp.QuoteMeta(name)+`($|[^-a-z0-9])`).ReplaceAllString(cause, "$1*$2")
		}
	}
	return varying.ReplaceAllString(cause, "*")
}

// group contains elements that share a row or a next step, and is not empty.
type group[T any] []T

func (g group[T]) more() string {
	if len(g) == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", len(g)-1)
}

// maxAlike is the largest number of elements with the same key that get a row each. More elements share
// one row.
const maxAlike = 3

// groups joins the elements with the same key, which of returns, into one group if there are more than
// maxAlike of them. The group has the place of its first element. Each other element is a group of its
// own.
func groups[T any, K comparable](all []T, of func(T) K) (joined []group[T]) {
	count, place := map[K]int{}, map[K]int{}
	for _, one := range all {
		count[of(one)]++
	}
	for _, one := range all {
		key := of(one)
		at, known := place[key]
		if known && count[key] > maxAlike {
			joined[at] = append(joined[at], one)
			continue
		}
		place[key] = len(joined)
		joined = append(joined, group[T]{one})
	}
	return joined
}
