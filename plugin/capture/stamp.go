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

// rulesVersion is incremented by every release whose rules, or whose Stamps, differ for the same
// Intent.
const rulesVersion = 5

// StampPrefix is the prefix of every Stamp, of any version. The Stamp is in a rule's comment, because
// older kernels drop comments of tables.
const StampPrefix = "capture-cni rules v"

// Stamp identifies the Ruleset in the kernel. It contains the version of the rules, the captured
// families, whether IPv6 is refused, and a hash of all rules with the names of sets. The hash omits each
// rule's Why and PerPacket, because they change no decision about a packet. It also omits fields that are
// not set, so that a new field does not change the Stamps of rules without this field.
func (rs Ruleset) Stamp() string {
	if rs.stamp != "" {
		return rs.stamp
	}
	families := string(IPv4)
	switch rs.IPv6 {
	case Captured:
		families += "," + string(IPv6)
	case Refused:
		families += "," + refusedIPv6
	}
	encoded, _ := json.Marshal(rs) // every type in it can be encoded
	sum := sha256.Sum256(encoded)
	return fmt.Sprintf("%s%d %s %s", StampPrefix, rulesVersion, families, hex.EncodeToString(sum[:16]))
}

// refusedIPv6 is the word in the Stamp of rules that refuse IPv6, instead of the family's name.
const refusedIPv6 = string(IPv6) + "=refused"

// WithStamp returns the Ruleset with its computed Stamp, for callers that need the Stamp several times.
// Without it, each call of Stamp hashes all rules.
func (rs Ruleset) WithStamp() Ruleset {
	rs.stamp = rs.Stamp()
	return rs
}

// IsStamp reports whether a text is a Stamp, of any version.
func IsStamp(text string) bool { return strings.HasPrefix(text, StampPrefix) }

// StampedIPv6 returns how the rules with this Stamp treat IPv6. It returns Ignored if the Stamp names
// no treatment.
func StampedIPv6(stamp string) Treatment {
	fields := strings.Fields(stamp)
	if len(fields) <= 3 {
		return ""
	}
	switch families := strings.Split(fields[3], ","); {
	case slices.Contains(families, string(IPv6)):
		return Captured
	case slices.Contains(families, refusedIPv6):
		return Refused
	}
	return ""
}
