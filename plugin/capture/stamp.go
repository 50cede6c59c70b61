// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	// rulesVersion grows with every release whose rules, or whose Stamps, differ
	// for the same Intent.
	rulesVersion = 3

	// textVersion is the last version whose Stamps hold a hash of the Ruleset as
	// text for nft. Later ones hold a hash of its data.
	textVersion = 2
)

// StampPrefix begins every Stamp, of any version.
const StampPrefix = "capture-cni rules v"

// Stamp identifies the Ruleset in the kernel: the version of the rules, the
// families captured and a hash of all rules.
func (rs Ruleset) Stamp() string {
	if rs.stamp != "" {
		return rs.stamp
	}
	version, hashed := rulesVersion, rs.encode
	if rs.stampOfText {
		version, hashed = textVersion, rs.body
	}
	families := IPv4
	if rs.IPv6 {
		families += "," + IPv6
	}
	sum := sha256.Sum256(hashed())
	return fmt.Sprintf("%s%d %s %s", StampPrefix, version, families, hex.EncodeToString(sum[:16]))
}

// WithStamp returns the Ruleset with its Stamp computed, for callers that need it more
// than once: it is a hash of all rules.
func (rs Ruleset) WithStamp() Ruleset {
	rs.stamp = rs.Stamp()
	return rs
}

// encode returns all data of the Ruleset, such that different Rulesets have
// different encodings. Comments and names of sets are part of it: the kernel
// holds them, and CHECK compares them. A field that is not set is left out, so
// that a field which a later version adds leaves the Stamps of other rules alone.
func (rs Ruleset) encode() []byte {
	encoded, _ := json.Marshal(rs) // every type in it can be encoded
	return encoded
}

// StampedAs returns the Ruleset as an ADD wrote it that left this stamp in the
// kernel: the same rules, with the Stamp of this version or of textVersion. own
// reports whether the stamp is either; if not, the Ruleset is returned as it is.
func (rs Ruleset) StampedAs(stamp string) (as Ruleset, own bool) {
	former := rs
	former.stampOfText, former.stamp = true, ""
	switch stamp {
	case rs.Stamp():
		return rs, true
	case former.Stamp():
		return former, true
	}
	return rs, false
}

// IsStamp reports whether a text is a Stamp, of any version.
func IsStamp(text string) bool { return strings.HasPrefix(text, StampPrefix) }

// StampCovers reports whether the rules of a stamp capture a family.
func StampCovers(stamp string, family Family) bool {
	fields := strings.Fields(stamp)
	return len(fields) > 3 && slices.Contains(strings.Split(fields[3], ","), string(family))
}
