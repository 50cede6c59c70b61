// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TextStamp returns the stamp that version 2 of the rules wrote for a Ruleset: it
// holds a hash of the table as text for nft, without the stamp's own chain.
func TextStamp(rs capture.Ruleset) string {
	_, body, _ := strings.Cut(rs.String(), "\t}\n")
	sum := sha256.Sum256([]byte(strings.TrimSuffix(body, "}\n")))
	families := "ipv4"
	if rs.IPv6 {
		families += ",ipv6"
	}
	return fmt.Sprintf("capture-cni rules v2 %s %s", families, hex.EncodeToString(sum[:16]))
}
