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

// rulesVersion grows with every release whose rules, or whose Stamps, differ for the
// same Intent.
const rulesVersion = 5

// StampPrefix begins every Stamp, of any version. A rule's comment holds the Stamp, because
// older kernels drop comments of tables.
const StampPrefix = "capture-cni rules v"

// Stamp identifies the Ruleset in the kernel: the version of the rules, the
// families captured and a hash of all rules. Comments and names of sets are part of it: the
// kernel holds them, and CHECK compares them. A field that is not set is left out, so
// that a field which a later version adds leaves the Stamps of other rules alone.
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

// refusedIPv6 stands for IPv6 in the Stamp of rules that refuse it.
const refusedIPv6 = string(IPv6) + "=refused"

// WithStamp returns the Ruleset with its Stamp computed, for callers that need it more
// than once: it is a hash of all rules.
func (rs Ruleset) WithStamp() Ruleset {
	rs.stamp = rs.Stamp()
	return rs
}

// IsStamp reports whether a text is a Stamp, of any version.
func IsStamp(text string) bool { return strings.HasPrefix(text, StampPrefix) }

// StampedIPv6 returns what the rules of a stamp do with IPv6; "" where they leave it alone.
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
