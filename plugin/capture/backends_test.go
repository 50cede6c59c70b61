// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestAppliedRules applies the rules of every golden case and removes them.
func TestAppliedRules(t *testing.T) {
	lab.RequireTime(t)
	lab.RequireRoot(t)
	lab.RequireProgram(t, "nft")
	cases, err := filepath.Glob("testdata/*/pod.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range cases {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			rs := rulesOf(t, dir)
			host := lab.StartHost(t)
			if err := host.Do(func() error { return nftables.Backend{}.Apply(t.Context(), rs) }); err != nil {
				t.Fatal(err)
			}
			listed := nft(t, host, "list", "table", "inet", capture.TableName)
			expectComments(t, rs, listed)
			expectLoadable(t, host, listed)
			expectNoDifference(t, host, rs)

			if err := host.Do(func() error { return nftables.Backend{}.Apply(t.Context(), rs) }); err == nil {
				t.Error("a second Apply succeeds")
			}
			if diff := cmp.Diff(listed, nft(t, host, "list", "table", "inet", capture.TableName)); diff != "" {
				t.Errorf("a second Apply changed the rules:\n%s", diff)
			}
			for range 2 { // the second finds no rules and succeeds
				if err := host.Do(func() error { return netfilter.Remove(t.Context()) }); err != nil {
					t.Error(err)
				}
			}
			if left := nft(t, host, "list", "ruleset"); left != "" {
				t.Errorf("Remove left:\n%s", left)
			}
		})
	}
}

func nft(t *testing.T, host *lab.Host, args ...string) string {
	t.Helper()
	var out []byte
	err := host.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "nft", append([]string{"-s"}, args...)...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("nft %q: %v: %s", args, err, out)
	}
	return string(out)
}

// expectComments expects a comment for every rule, and the stamp.
func expectComments(t *testing.T, rs capture.Ruleset, listed string) {
	t.Helper()
	want := map[string]int{rs.Stamp(): 1}
	for _, chain := range rs.Chains {
		for _, rule := range chain.Rules {
			want[rule.Why]++
		}
	}
	for why, n := range want {
		if got := strings.Count(listed, `comment "`+why+`"`); got != n {
			t.Errorf("comment %q is listed %d times, want %d", why, got, n)
		}
	}
}

// expectLoadable loads nft's own listing in place of the table, as an operator who
// restores a saved ruleset would.
func expectLoadable(t *testing.T, host *lab.Host, listed string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "listed.nft")
	if err := os.WriteFile(file, []byte("delete table inet "+capture.TableName+"\n"+listed), 0o600); err != nil {
		t.Fatal(err)
	}
	nft(t, host, "-c", "-f", file)
}

func expectNoDifference(t *testing.T, host *lab.Host, rs capture.Ruleset) {
	t.Helper()
	want, err := netfilter.Reference(t.Context(), nftables.Backend{}, rs)
	if err != nil {
		t.Fatal(err)
	}
	var found dump.Dump
	err = host.Do(func() (err error) {
		found, err = nftables.Backend{}.Dump(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if differences := dump.Diff(want, found); len(differences) > 0 {
		t.Errorf("the applied rules differ from the desired state: %q", differences)
	}
}
