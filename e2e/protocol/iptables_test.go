// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// maxPrograms is how many programs an ADD may execute, including the plugin itself and,
// without an agent, capture-cni-lookup.
const maxPrograms = 8

// executed traces a call and returns the executed programs with their arguments.
func executed(t *testing.T, c call) (programs []string) {
	t.Helper()
	plugin := c.prepare()
	trace := filepath.Join(t.TempDir(), "trace")
	command := exec.Command("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=execve", "-e", "signal=none", "-s", "200", "-o", trace, plugin.Path)
	command.Env = append(plugin.Env, "PATH="+os.Getenv("PATH"))
	command.Stdin = plugin.Stdin
	if o := finish(t, command); o.status != 0 {
		t.Fatalf("status %d: %s%s", o.status, o.stdout, o.stderr)
	}
	content, err := os.ReadFile(trace)
	lab.Check(t, err)
	for _, match := range regexp.MustCompile(`execve\("[^"]*", \[([^\]]*)\], [^)]*\) = 0`).FindAllStringSubmatch(string(content), -1) {
		programs = append(programs, strings.ReplaceAll(strings.ReplaceAll(match[1], `"`, ""), ",", ""))
	}
	return programs
}

// TestProgramsExecuted counts the programs that each verb executes. With iptables, ADD
// executes only -V, save and restore; with nftables, none. There is no agent, so
// capture-cni-lookup comes on top.
func TestProgramsExecuted(t *testing.T) {
	n := newNode(t)
	expected := regexp.MustCompile(`(^|/)(capture-cni(-lookup)?|ip6?tables(-nft|-legacy)?(-restore|-save| -V)( --\S+)*)$`)
	for _, test := range []struct {
		backend  string
		add, del int // at most, including the plugin itself
	}{{"nftables", 2, 1}, {"iptables", maxPrograms, 100}, {"iptables-nft", 4, 1}, {"iptables-legacy", 6, 40}} {
		t.Run(test.backend, func(t *testing.T) {
			host := sandbox(t)
			host.Load(t, "table ip nat {\n chain OTHER {\n }\n}\n")
			for _, command := range []string{"iptables-legacy", "ip6tables-legacy"} { // the tables must exist to be saved
				lab.Check(t, host.Do(func() error {
					return exec.CommandContext(t.Context(), command, "--wait", "-t", "nat", "-N", "OTHER").Run()
				}))
			}
			stdin := n.conf(fmt.Sprintf(`"backend": %q, "ipv6": "always",`, test.backend))
			added := executed(t, call{netns: host.Path(), stdin: stdin})
			if len(added) > test.add {
				t.Errorf("ADD executes %d programs, want at most %d: %q", len(added), test.add, added)
			}
			for _, program := range added {
				if !expected.MatchString(program) {
					t.Errorf("ADD executes %q", program)
				}
			}
			call{command: "CHECK", netns: host.Path(), stdin: strings.Replace(stdin, "{", `{"prevResult": {"cniVersion": "1.0.0"},`, 1)}.run(t).silent(t)
			removed := executed(t, call{command: "DEL", netns: host.Path(), stdin: stdin})
			if len(removed) > test.del {
				t.Errorf("DEL executes %d programs, want at most %d: %q", len(removed), test.del, removed)
			}
			t.Logf("ADD executes %d programs, DEL %d", len(added), len(removed))
			call{netns: host.Path(), stdin: stdin}.deleteBy(t, "") // on a busy machine, the first one's time can be over
			expectNoRules(t, host)
		})
	}
}

// expectNoRules expects no rules of ours, with any backend.
func expectNoRules(t *testing.T, host *lab.Host) {
	t.Helper()
	lab.Check(t, host.Do(func() error {
		for _, command := range []string{"nft list ruleset", "iptables-legacy-save", "ip6tables-legacy-save", "ip rule"} {
			words := strings.Fields(command)
			out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).Output()
			if err != nil {
				return err
			}
			for _, ours := range []string{"ISTIO", "CAPTURE", "capture-cni", "lookup 133"} {
				if strings.Contains(string(out), ours) {
					t.Errorf("%s still lists %s:\n%s", command, ours, out)
				}
			}
		}
		return nil
	}))
}

// TestBackendsByProtocol executes each verb twice with every backend.
func TestBackendsByProtocol(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, backend := range []string{"nftables", "iptables", "iptables-nft", "iptables-legacy"} {
		t.Run(backend, func(t *testing.T) {
			host := sandbox(t)
			stdin := n.conf(fmt.Sprintf(`"backend": %q, "status": "strict", "prevResult": {"cniVersion": "1.0.0"},`, backend))
			call{command: "STATUS", stdin: strings.ReplaceAll(stdin, "1.0.0", "1.1.0")}.run(t).silent(t)
			for range 2 {
				call{netns: host.Path(), stdin: stdin}.run(t).succeeds(t)
			}
			for range 2 {
				call{command: "CHECK", netns: host.Path(), stdin: stdin}.run(t).silent(t)
			}
			other := strings.Replace(stdin, backend, map[bool]string{true: "iptables-nft", false: "nftables"}[backend == "nftables"], 1)
			call{netns: host.Path(), stdin: other}.run(t).fails(t, 101, "delete the pod to get a new sandbox")
			// DEL takes out what is there, whatever the configuration says by then.
			for range 2 {
				call{command: "DEL", netns: host.Path(), stdin: other}.run(t).silent(t)
			}
			expectNoRules(t, host)
		})
	}
}

// TestLockedNode holds the node's lock of iptables: neither ADD nor DEL waits for it,
// and DEL leaves no rule.
func TestLockedNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	host := sandbox(t)
	lock, err := os.OpenFile("/run/xtables.lock", os.O_RDWR|os.O_CREATE, 0o600)
	lab.Check(t, err)
	defer lock.Close()
	lab.Check(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	stdin := n.conf(`"backend": "iptables-legacy", "ipv6": "always",`)
	call{netns: host.Path(), stdin: stdin}.run(t).succeeds(t)
	call{netns: host.Path(), stdin: stdin}.deleteBy(t, "")
	lab.Check(t, lock.Close())
	expectNoRules(t, host)
}
