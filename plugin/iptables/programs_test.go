// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		variant config.Backend
		wait    bool
		err     string
	}{
		"iptables v1.8.9 (nf_tables)\n":      {variant: config.IPTablesNFT},
		"ip6tables v1.8.9 (legacy)\n":        {variant: config.IPTablesLegacy, wait: true},
		"iptables v1.6.2\n":                  {variant: config.IPTablesLegacy, wait: true},
		"iptables v1.6.1\n":                  {variant: config.IPTablesLegacy},
		"iptables v1.4.21\n":                 {variant: config.IPTablesLegacy},
		"iptables v1.9.0 (bpf)\n":            {err: `"iptables v1.9.0 (bpf)" names an unknown variant`},
		"BusyBox\n":                          {err: `"BusyBox" is no version`},
		"":                                   {err: `"" is no version`},
		"iptables v1.99999999999999999999.1": {err: "is no version"},
	} {
		variant, wait, err := parseVersion(text)
		if err == nil && want.err != "" || err != nil && (want.err == "" || !strings.Contains(err.Error(), want.err)) {
			t.Errorf("%q: got error %v, want %q", text, err, want.err)
		}
		if variant != want.variant || wait != want.wait {
			t.Errorf("%q: got %q, wait %v", text, variant, wait)
		}
	}
}
