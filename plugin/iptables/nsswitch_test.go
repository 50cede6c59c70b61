// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestNameServicesAreHidden expects an empty nsswitch.conf for the program, which
// runs in the pod's network namespace, and the host's own file unchanged.
func TestNameServicesAreHidden(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	before, err := os.ReadFile("/etc/nsswitch.conf")
	if err != nil || len(before) == 0 {
		lab.Lacks(t, "/etc/nsswitch.conf")
	}
	err = host.Do(func() error {
		netns, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		script := `test ! -s /etc/nsswitch.conf && test "$(readlink /proc/self/ns/net)" = "` + netns + `" && cat`
		return runWithoutNameServices(t.Context(), "", []byte("rules"), "/bin/sh", "-c", script)
	})
	if err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile("/etc/nsswitch.conf"); err != nil || string(after) != string(before) {
		t.Errorf("the host's own file changed: %v", err)
	}
}

// TestProgramsThatFail expects the command, its exit status and its stderr in the error.
func TestProgramsThatFail(t *testing.T) {
	t.Parallel()
	_, err := run(t.Context(), "", nil, "/bin/sh", "-c", "echo two; echo words >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "running /bin/sh -c") || !strings.Contains(err.Error(), "exit status 3: words") {
		t.Errorf("got %v", err)
	}
}
