// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestKernel tests the kernel of a node without iptables: it runs itself where /usr/sbin is empty.
func TestKernel(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	wanted := DefaultSettings(machine.New(t, map[string]string{"/etc/cni/net.d/sub/other": "", "/opt/cni/bin/other": ""}))
	if asked := os.Getenv("PREFLIGHT_ASKED"); asked != "" {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		if wanted.Entry.Asked = config.Backend(asked); os.Getenv("PREFLIGHT_ENDED") != "" {
			end()
		}
		fmt.Printf("found:%s.\n", withoutCodes(Check(ctx, wanted, nil)[2:].String())) // the first ones are about the runtime and its lists
		return
	}
	for name, tt := range map[string]struct{ asked, ended, want string }{
		"it works":       {"nftables", "", "found:no problems found."},
		"no program":     {"iptables-legacy", "", `: set {"backend": "nftables"} in --netconf.`},
		"it was stopped": {"iptables-legacy", "yes", "found:note: the kernel was not tested (testing backend iptables-legacy: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := exec.Command("unshare", "--mount", "sh", "-ec", `mount --bind "$0" /usr/sbin; exec "$@"`, t.TempDir(), os.Args[0], "-test.run=^TestKernel$")
			child.Env = append(os.Environ(), "PREFLIGHT_ASKED="+tt.asked, "PREFLIGHT_ENDED="+tt.ended)
			out, err := child.CombinedOutput()
			if err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v, %s", err, out)
			}
		})
	}
}

// TestUnwritable has a file in place of a directory, and a directory that a security module protects.
func TestUnwritable(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	wanted := DefaultSettings(machine.New(t, map[string]string{"/etc/cni/net.d/a": "", "/opt/cni/bin": ""}))
	net := wanted.At(wanted.NetDir)
	lab.Check(t, exec.Command("chattr", "+i", net).Run())
	t.Cleanup(func() { lab.Check(t, exec.Command("chattr", "-i", net).Run()) })
	for label, want := range map[string]string{
		"":                   "/etc/cni/net.d can't be written to (operation not permitted): mount it writable",
		"confined (enforce)": "/etc/cni/net.d can't be written to (operation not permitted): the mode of " + net + " allows it, and AppArmor confines the agent with the profile confined",
	} {
		p := preflight{settings: wanted, label: label}
		p.writable()
		if got := p.found.String(); !strings.Contains(got, want) || !strings.Contains(got, "/opt/cni/bin can't be written to (permission denied): mount it writable") || len(p.found.Of(report.Problem)) == 0 {
			t.Errorf("%q: %s", label, got)
		}
	}
}
