// SPDX-License-Identifier: Apache-2.0

// Package ages expects that nft and iptables of other ages list the rules, and that
// iptables of other ages applies them.
package ages

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/debian"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// fetched keeps what was fetched: another run needs no mirror.
const fetched = "../../bin/debian"

// suites are those that users' nodes have.
var suites = []string{"bullseye", "bookworm", "trixie"}

// forEachSuite runs a test with the nft and iptables of each suite that the mirror has.
func forEachSuite(t *testing.T, test func(t *testing.T, tools toolset)) {
	t.Helper()
	lab.RequireRoot(t)
	tested := 0
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			root, err := debian.Unpack(t.Context(), fetched, debian.Request{Suite: suite, Packages: []string{"nftables", "iptables"}})
			if errors.Is(err, debian.ErrGone) {
				lab.SkipGone(t, err)
			}
			if err != nil {
				lab.Lacks(t, "Debian's mirror: "+err.Error())
			}
			tested++
			versions, err := debian.Versions(root)
			lab.Check(t, err)
			t.Logf("nft %s, iptables %s", versions["nftables"], versions["iptables"])
			test(t, newTools(t, root))
		})
	}
	if tested == 0 && !t.Failed() {
		lab.Lacks(t, "one of Debian's suites on the mirror")
	}
}

// toolset is a directory of the programs of one suite.
type toolset string

// newTools writes a script for each program, which runs it in the directory into which
// its packages were unpacked. iptables-legacy needs /proc, and a lock that exists there.
func newTools(t *testing.T, root string) toolset {
	t.Helper()
	root, err := filepath.Abs(root)
	lab.Check(t, err)
	lab.Check(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
	programs, err := filepath.Glob(filepath.Join(root, "usr", "sbin", "*"))
	lab.Check(t, err)
	directory := t.TempDir()
	for _, program := range programs {
		name := filepath.Base(program)
		script := fmt.Sprintf("#!/bin/sh\nexport XTABLES_LOCKFILE=/proc/self/comm\nexec unshare --mount sh -c 'mount --bind /proc %[1]s/proc && exec chroot %[1]s /usr/sbin/%[2]s \"$@\"' %[2]s \"$@\"\n", root, name)
		lab.Check(t, lab.WriteProgram(filepath.Join(directory, name), []byte(script)))
	}
	return toolset(directory)
}

// machine has the programs that are installed.
const machine = toolset("/usr/sbin")

// warnings are what nft prints about rules of iptables-nft: it lists them, those of IPv6
// without owners and targets.
var warnings = regexp.MustCompile(`(?m)^(# Warning: table .* is managed by iptables-nft, do not touch!|Warning: Extension owner is not supported, missing kernel module[?]|(# Warning: )?XT target (TPROXY|REDIRECT) not found)$`)

// run runs a program in a namespace, and returns what it prints. A program that fails, or
// complains, fails the test.
func (tools toolset) run(t *testing.T, host *lab.Host, stdin, name string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := host.Do(func() error {
		command := exec.CommandContext(t.Context(), filepath.Join(string(tools), name), args...)
		command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &stdout, &stderr
		return command.Run()
	})
	complaint := strings.TrimSpace(warnings.ReplaceAllString(stderr.String(), ""))
	if err != nil || complaint != "" {
		t.Fatalf("%s %q: %v: %s", name, args, err, complaint)
	}
	return stdout.String()
}
