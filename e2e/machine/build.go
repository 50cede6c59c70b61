// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Bin is the directory into which Main builds the agent and the plugin.
var Bin string

// NoRuntime has the agents ask no runtime, unless a test gives them one: the machine may
// have its own.
const NoRuntime = "CAPTURE_CNI_CRI_SOCKET=none"

// Main builds the programs, as small as a release's because each check of an agent reads them,
// and runs the tests of a package. It is for a TestMain.
func Main(m *testing.M) int {
	project, err := lab.Project(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if Bin, err = os.MkdirTemp("", "agent-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(Bin) }()
	for name, source := range map[string]string{"capture-cni": "plugin/capture-cni", "capture-cni-lookup": "plugin/capture-cni-lookup", "capture-cni-node": "install/capture-cni-node"} {
		build := exec.Command("go", "build", "-C", project, "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(Bin, name), "github.com/capture-cni/capture-cni/"+source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building %s: %v\n%s", name, err, out)
			return 1
		}
	}
	return m.Run()
}
