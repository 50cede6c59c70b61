// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestLostAnswers has the kernel lose each answer to an ADD in turn, as it does without
// memory for it: the ADD succeeds with all rules, or it fails and leaves none.
func TestLostAnswers(t *testing.T) {
	lab.RequireProgram(t, "strace")
	n := newNode(t)
	lost, succeeded := 0, 0
	for nth := 1; ; nth++ {
		host := sandbox(t)
		plugin := call{netns: host.Path(), stdin: n.conf("")}.prepare()
		trace := filepath.Join(t.TempDir(), "trace")
		command := exec.Command("strace", "-f", "-qq", "-o", trace, "-e", "trace=recvfrom", "-e", "signal=none",
			"-e", fmt.Sprintf("inject=recvfrom:error=ENOBUFS:when=%d", nth), plugin.Path)
		command.Env, command.Stdin = plugin.Env, plugin.Stdin
		out := finish(t, command)
		content, err := os.ReadFile(trace)
		check(t, err)
		isLost := strings.Contains(string(content), "INJECTED")
		switch {
		case out.status == 0:
			check(t, host.CheckRules(t.Context(), meshed()))
		case isLost:
			out.fails(t, 999, "no buffer space available")
			expectNoRules(t, host)
		}
		if !isLost {
			out.succeeds(t)
			break
		}
		if lost++; out.status == 0 {
			succeeded++
		}
	}
	t.Logf("%d answers were lost, %d ADDs succeeded", lost, succeeded)
	if lost == 0 || succeeded == 0 {
		t.Error("no ADD succeeded without an answer that it can do without")
	}
}
