// SPDX-License-Identifier: Apache-2.0

package ages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestListedByNFT expects that what nft of any age lists of the rules are the rules: the
// machine's nft loads that text, and lists the same as of the rules themselves.
func TestListedByNFT(t *testing.T) {
	forEachSuite(t, func(t *testing.T, tools toolset) {
		for name, rs := range rulesets(t) {
			t.Run(name, func(t *testing.T) {
				pod := lab.StartHost(t)
				lab.Check(t, pod.Do(func() error { return nftables.Backend{}.Apply(t.Context(), rs) }))
				listing := listRules(t, tools, pod)
				if diff := cmp.Diff(listRules(t, machine, pod), listRules(t, machine, loaded(t, machine, olderNames.Replace(listing)))); diff != "" {
					t.Errorf("-rules +loaded from the listing:\n%s", diff)
				}
				if diff := cmp.Diff(listing, listRules(t, tools, loaded(t, tools, listing))); diff != "" {
					t.Errorf("-listed +loaded:\n%s", diff)
				}
			})
		}
	})
}

// olderNames undoes names that nft 1.0.6 does not read, and nft 1.1.3 writes.
var olderNames = strings.NewReplacer("hook output priority dstnat - 1", "hook output priority -101")

func listRules(t *testing.T, tools toolset, host *lab.Host) string {
	t.Helper()
	return tools.run(t, host, "", "nft", "-s", "list", "ruleset")
}

// loaded returns a namespace with rules that nft has loaded.
func loaded(t *testing.T, tools toolset, listing string) *lab.Host {
	t.Helper()
	host := lab.StartHost(t)
	tools.run(t, host, listing, "nft", "-f", "/proc/self/fd/0")
	return host
}
