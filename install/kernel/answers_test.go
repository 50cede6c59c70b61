// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// envReplace makes this program replace the rules of its namespace: by good ones, or by
// some that the kernel refuses.
const envReplace = "NETFILTER_TEST_REPLACE"

func init() {
	which := os.Getenv(envReplace)
	if which == "" {
		return
	}
	if err := replaceRules(context.Background(), replacements[which]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

var replacements = map[string]capture.Ruleset{"good": sample.Rules(), "refused": sample.Dangling()}

// TestLostAnswers has the kernel lose each answer to a repair in turn: the repair
// succeeds where the rules are replaced, and fails where those of before are there.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	lab.RequireProgram(t, "strace")
	for which := range replacements {
		want, err := netfilter.Reference(t.Context(), nftables.Backend{}, sample.Rules())
		if err != nil {
			t.Fatal(err)
		}
		repaired := 0
		for nth := 1; ; nth++ {
			host := lab.StartHost(t)
			sample.Apply(t, host, sample.Rules())
			host.Load(t, "flush chain inet capture-cni nat_ISTIO_OUTPUT")
			lost, succeeded := replaceWithout(t, host, which, nth)
			if isRepaired := len(dump.Diff(want, sample.Dump(t, host))) == 0; isRepaired != succeeded {
				t.Errorf("%s, without answer %d: succeeded %v, repaired %v", which, nth, succeeded, isRepaired)
			}
			if !lost {
				break
			}
			if succeeded {
				repaired++
			}
		}
		if (repaired > 0) != (which == "good") {
			t.Errorf("%s: %d repairs succeeded without an answer", which, repaired)
		}
	}
}

// replaceWithout replaces the rules of a namespace without the nth answer of the kernel,
// and reports whether there was one to lose.
func replaceWithout(t *testing.T, host *lab.Host, which string, nth int) (lost, succeeded bool) {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	command := exec.Command("strace", "-f", "-qq", "-o", trace, "-e", "trace=recvfrom", "-e", "signal=none",
		"-e", fmt.Sprintf("inject=recvfrom:error=ENOBUFS:when=%d", nth), os.Args[0])
	command.Env = append(os.Environ(), envReplace+"="+which)
	var out []byte
	host.Within(t, func() error {
		var err error
		out, err = command.CombinedOutput()
		succeeded = err == nil
		return nil
	})
	t.Logf("%s, without answer %d: %v %s", which, nth, succeeded, out)
	content, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(content), "INJECTED"), succeeded
}
