// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os/exec"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestEnableConntrack expects that the table of an interrupted repair is not
// taken for capture rules, and that the next repair and a DEL remove it.
func TestEnableConntrack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func() error{
		"repaired": func() error { return replaceRules(t.Context(), sample.Rules()) },
		"deleted":  func() error { return netfilter.Remove(t.Context()) },
		"undone":   func() error { return disableConntrack(t.Context()) },
	} {
		host := lab.StartHost(t)
		host.Within(t, func() error { return disableConntrack(t.Context()) }) // there is nothing to undo yet
		for range 2 {
			host.Within(t, func() error { return enableConntrack(t.Context()) })
			if got := sample.Inspect(t, host); got != (netfilter.State{}) {
				t.Errorf("it is taken for %+v", got)
			}
			if left := dump.Diff(dump.Dump{}, sample.Dump(t, host)); len(left) > 0 {
				t.Errorf("it is taken for %q", left)
			}
		}
		host.Within(t, end)
		var listed []byte
		host.Within(t, func() (err error) {
			listed, err = exec.CommandContext(t.Context(), "nft", "list", "tables").Output()
			return err
		})
		want := map[string]string{"repaired": "table inet capture-cni\n"}[name]
		if string(listed) != want {
			t.Errorf("%s: left %q", name, listed)
		}
	}
}
