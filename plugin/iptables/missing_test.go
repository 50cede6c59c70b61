// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestModulesNamedByIPTables reads what iptables 1.8.9 printed on kernels that lacked
// modules.
func TestModulesNamedByIPTables(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		program, stderr string
		want            []string
	}{
		{
			"ip6tables-nft-restore",
			"Warning: Extension CT revision 0 not supported, missing kernel module?\nWarning: Extension owner is not supported, missing kernel module?\n" +
				"Warning: Extension CT is not supported, missing kernel module?\nip6tables-nft-restore v1.8.9 (nf_tables):\nline 5: RULE_APPEND failed (No such file or directory): rule in chain CAPTURE_CNI\n",
			[]string{"nft_compat", "xt_CT", "xt_owner"},
		},
		{
			"iptables-legacy-restore",
			"Warning: Extension owner revision 0 not supported, missing kernel module?\niptables-restore v1.8.9 (legacy): Couldn't load match `owner'\n",
			[]string{"xt_owner"},
		},
		{
			"ip6tables-legacy-restore",
			"Warning: Extension DNAT revision 0 not supported, missing kernel module?\nWarning: Extension REJECT revision 0 not supported, missing kernel module?\n" +
				"Warning: Extension CONNMARK revision 0 not supported, missing kernel module?\nWarning: Extension tcp revision 0 not supported, missing kernel module?\n",
			[]string{"ip6t_REJECT", "xt_connmark", "xt_nat", "xt_tcpudp"},
		},
		{"ip6tables-legacy-restore", "ip6tables-restore v1.8.9 (legacy): ip6tables-restore: unable to initialize table 'raw'\n\nError occurred at line: 1\n", []string{"ip6table_raw"}},
		{"iptables-legacy", "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)\n", []string{"iptable_nat"}},
		{"ip6tables", "ip6tables: Failed to initialize nft: Protocol not supported\n", []string{"nfnetlink"}},
		{"iptables-restore", "iptables-restore: line 3 failed\n", nil},
	} {
		if got := missingModules(tt.program, tt.stderr); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.stderr, got, tt.want)
		}
		fault := errors.New("exit status 4")
		err := nameMissing(tt.program, tt.stderr, fault)
		if !errors.Is(err, fault) || strings.Contains(err.Error(), "the kernel lacks") != (len(tt.want) > 0) {
			t.Errorf("%s: %v", tt.stderr, err)
		}
	}
}
