// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// envOpen makes this program open a network namespace and print whether it is refused.
const envOpen = "TRAFFIC_TEST_OPEN"

func init() {
	path := os.Getenv(envOpen)
	if path == "" {
		return
	}
	_, err := podnet.Open(context.Background(), path)
	_, refused := errors.AsType[capture.Refusal](err)
	fmt.Print(refused)
	os.Exit(0)
}

// TestHostIsRefused opens a process's own network namespace, that of process 1 from
// another one, and one that is no host's.
func TestHostIsRefused(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	const own = "/proc/self/ns/net"
	inside, pod := lab.StartHost(t), lab.StartHost(t)
	for _, tt := range []struct {
		from, path string
		refused    bool
	}{
		{own, own, true},
		{inside.Path(), own, true},
		{inside.Path(), "/proc/1/ns/net", true},
		{inside.Path(), pod.Path(), false},
	} {
		// Some containers may not read the file of their first process. The shell is
		// the first process of a PID namespace.
		command := exec.CommandContext(t.Context(), "unshare", "--pid", "--fork", "--mount-proc",
			"sh", "-c", `nsenter --net="$1" "$2"; exit $?`, "sh", tt.from, os.Args[0])
		command.Env = append(os.Environ(), envOpen+"="+tt.path)
		out, err := command.CombinedOutput()
		if want := fmt.Sprint(tt.refused); err != nil || string(out) != want {
			t.Errorf("%s from %s: refused %s, %v; want %s", tt.path, tt.from, out, err, want)
		}
	}
}
