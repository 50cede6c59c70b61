// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestNetlinkEqualsNFT loads every golden file with nft, applies the same rules by
// netlink, and expects the same listing.
func TestNetlinkEqualsNFT(t *testing.T) {
	lab.RequireTime(t)
	lab.RequireRoot(t)
	cases, _ := filepath.Glob("testdata/*/pod.yaml")
	for _, path := range cases {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			golden, err := filepath.Abs(filepath.Join(dir, "ruleset.nft"))
			if err != nil {
				t.Fatal(err)
			}
			text := listing(t, func() error { return exec.CommandContext(t.Context(), "nft", "-f", golden).Run() })
			netlink := listing(t, func() error { return nftables.Backend{}.Apply(t.Context(), rulesOf(t, dir)) })
			if diff := cmp.Diff(text, netlink); diff != "" {
				t.Errorf("-nft +netlink:\n%s", diff)
			}
		})
	}
}

// listing returns what nft lists after apply in a new namespace.
func listing(t *testing.T, apply func() error) string {
	t.Helper()
	host := lab.StartHost(t)
	var out []byte
	err := host.Do(func() (err error) {
		if err := apply(); err != nil {
			return err
		}
		out, err = exec.CommandContext(t.Context(), "nft", "-s", "list", "ruleset").CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
