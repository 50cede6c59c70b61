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
	// strace counts the answers to each thread alone, and Go chooses the thread.
	for sweep := 0; sweep < 20 && succeeded == 0; sweep++ {
		for nth, isLost := 1, true; isLost; nth++ {
			var hasSucceeded bool
			if hasSucceeded, isLost = addWithoutAnswer(t, n, nth); !isLost {
				continue
			}
			if lost++; hasSucceeded {
				succeeded++
			}
		}
	}
	t.Logf("%d answers were lost, %d ADDs succeeded", lost, succeeded)
	if succeeded == 0 {
		t.Error("no ADD succeeded without an answer that it can do without")
	}
}

// addWithoutAnswer calls ADD, and each thread loses its nth answer. It reports whether ADD
// succeeded, and whether an answer was lost.
func addWithoutAnswer(t *testing.T, n node, nth int) (succeeded, lost bool) {
	t.Helper()
	host := sandbox(t)
	plugin := call{netns: host.Path(), stdin: n.conf("")}.prepare()
	trace := filepath.Join(t.TempDir(), "trace")
	command := exec.Command("strace", "-f", "-qq", "-o", trace, "-e", "trace=recvfrom", "-e", "signal=none",
		"-e", fmt.Sprintf("inject=recvfrom:error=ENOBUFS:when=%d", nth), plugin.Path)
	command.Env, command.Stdin = plugin.Env, plugin.Stdin
	out := finish(t, command)
	content, err := os.ReadFile(trace)
	check(t, err)
	lost = strings.Contains(string(content), "INJECTED")
	switch {
	case out.status == 0:
		check(t, host.CheckRules(t.Context(), meshed()))
	case lost:
		out.fails(t, 999, "no buffer space available")
		expectNoRules(t, host)
	default:
		out.succeeds(t)
	}
	return out.status == 0, lost
}
