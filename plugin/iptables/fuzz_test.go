// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"testing"

	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// FuzzRule parses rules of iptables-nft that no kernel sends today.
func FuzzRule(f *testing.F) {
	f.Add([]byte{12, 0, 1, 0, 8, 0, 1, 0, 'l', 'o', 0, 0})
	f.Add([]byte{4, 0, 1, 0x80, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if comment := ruleComment(nfnetlink.Attributes{4: data, 7: data}); len(comment) > len(data) {
			t.Errorf("comment %q", comment)
		}
		leadsToOurs(data)
	})
}
