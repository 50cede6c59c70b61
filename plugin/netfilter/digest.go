// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// digestVersion grows with every change of what a dump holds: digests of
// different versions can't be compared.
const digestVersion = "1:"

// Digest identifies the content of a dump.
func (t Table) Digest() string {
	objects := slices.SortedFunc(slices.Values(t.objects), func(a, b object) int { return strings.Compare(a.name, b.name) })
	sum := sha256.New()
	for _, o := range objects {
		fmt.Fprintf(sum, "%q %q %d\n", o.name, o.content, len(o.items))
		for _, i := range o.items {
			fmt.Fprintf(sum, "%q\n", i.content)
		}
	}
	return digestVersion + hex.EncodeToString(sum.Sum(nil))
}

// Comparable reports whether a digest is one that this program could have made.
func Comparable(digest string) bool { return strings.HasPrefix(digest, digestVersion) }
