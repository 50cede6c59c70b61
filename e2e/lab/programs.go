// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// BuiltPrograms is the variable that names a directory in which programs were built
// before: where tests run, there may be no compiler.
const BuiltPrograms = "CAPTURE_CNI_TEST_PROGRAMS"

// Programs returns a directory with the plugin, capture-cni-lookup, the reference
// plugins and cnitool.
func Programs() (directory string, remove func(), err error) {
	if built := os.Getenv(BuiltPrograms); built != "" {
		return built, func() {}, nil
	}
	if directory, err = os.MkdirTemp("", "programs-"); err != nil {
		return "", nil, err
	}
	if err := BuildPrograms(directory, runtime.GOARCH); err != nil {
		return "", nil, err
	}
	return directory, func() { _ = os.RemoveAll(directory) }, nil
}

// BuildPrograms builds them for an architecture into a directory, with more flags of go
// build.
func BuildPrograms(directory, architecture string, flags ...string) error {
	for _, target := range []string{
		"github.com/containernetworking/plugins/plugins/main/bridge",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
		"github.com/containernetworking/cni/cnitool",
		"github.com/capture-cni/capture-cni/plugin/capture-cni",
		"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup",
	} {
		args := append([]string{"build", "-trimpath", "-o", directory + "/"}, flags...)
		build := exec.Command("go", append(args, target)...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w: %s", target, err, out)
		}
	}
	return nil
}
