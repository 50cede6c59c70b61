// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Bin is the directory into which Main builds the agent and the plugin.
var Bin string

// NoRuntime has the agents ask no runtime, unless a test gives them one: the machine may
// have its own.
const NoRuntime = "CAPTURE_CNI_CRI_SOCKET=none"

// Main builds the programs and runs the tests of a package. It is for a TestMain.
func Main(m *testing.M) int {
	var err error
	if Bin, err = os.MkdirTemp("", "agent-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(Bin) }()
	if err := lab.Build(context.Background(), Bin, "./plugin/capture-cni", "./plugin/capture-cni-lookup", "./install/capture-cni-node"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
