// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// commit is the type of the message that begins a transaction of nftables,
// NFNL_MSG_BATCH_BEGIN.
const commit = "0x10"

// TestLostAnswers has the kernel lose each answer to an ADD, as it does without memory for
// it. Without the answer to its commit, ADD reads what the kernel has, and succeeds; without
// any other answer, it fails and leaves no rule.
func TestLostAnswers(t *testing.T) {
	lab.RequireProgram(t, "strace")
	n := newNode(t)
	lost := map[string]int{}
	var requests []string
	isMissing := func(request string) bool { return lost[request] == 0 }
	// strace counts the answers to each thread alone, and Go may change the thread: then
	// another sweep loses what this one could not.
	for sweep := 0; sweep < 20 && (sweep == 0 || slices.ContainsFunc(requests, isMissing)); sweep++ {
		for nth := 1; ; nth++ {
			all, without := addWithoutAnswer(t, n, nth)
			if len(without) == 0 {
				requests = all
				break
			}
			for _, request := range without {
				lost[request]++
			}
		}
	}
	t.Logf("ADD sent requests of types %v; their answers were lost this often: %v", requests, lost)
	if len(requests) < 4 || slices.ContainsFunc(requests, isMissing) || lost[commit] == 0 {
		t.Error("an answer was never lost")
	}
}

// request finds a netlink request in a trace, with the type of its first message, or an
// answer that was lost.
var request = regexp.MustCompile(`sendto\(\d+, \[+\{nlmsg_len=\d+, nlmsg_type=(\w+)|INJECTED`)

// addWithoutAnswer calls ADD, and each thread loses its nth answer. It returns the
// types of the requests, and of those whose answer was lost.
func addWithoutAnswer(t *testing.T, n node, nth int) (requests, lost []string) {
	t.Helper()
	host := sandbox(t)
	plugin := call{netns: host.Path(), stdin: n.conf("")}.prepare()
	trace := filepath.Join(t.TempDir(), "trace")
	command := exec.Command("strace", "-f", "-qq", "-o", trace, "-e", "trace=recvfrom,sendto", "-e", "signal=none",
		"-e", fmt.Sprintf("inject=recvfrom:error=ENOBUFS:when=%d", nth), plugin.Path)
	command.Env, command.Stdin = plugin.Env, plugin.Stdin
	out := finish(t, command)
	content, err := os.ReadFile(trace)
	lab.Check(t, err)
	fatal := false
	for _, found := range request.FindAllStringSubmatch(string(content), -1) {
		if found[1] != "" {
			requests = append(requests, found[1])
			continue
		}
		last := requests[len(requests)-1]
		lost, fatal = append(lost, last), fatal || last != commit
	}
	if fatal {
		out.fails(t, 999, "no buffer space available")
		expectNoRules(t, host)
	} else {
		out.succeeds(t)
		lab.Check(t, host.CheckRules(t.Context(), meshed()))
	}
	if t.Failed() {
		t.Fatalf("without the answers to %v:\n%s", lost, strings.TrimSpace(string(content)))
	}
	return requests, lost
}
