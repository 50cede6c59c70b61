// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Project returns the directory of the project. It holds in each of the project's modules.
func Project(ctx context.Context) (string, error) {
	uncached()
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/capture-cni/capture-cni").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module's directory: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

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
	if err := BuildPrograms(context.Background(), directory, runtime.GOARCH); err != nil {
		return "", nil, err
	}
	return directory, func() { _ = os.RemoveAll(directory) }, nil
}

// BuildPrograms builds them for an architecture into a directory, with more flags of go
// build.
func BuildPrograms(ctx context.Context, directory, architecture string, flags ...string) error {
	project, err := Project(ctx)
	if err != nil {
		return err
	}
	for _, target := range []string{
		"github.com/containernetworking/plugins/plugins/main/bridge",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
		"github.com/containernetworking/cni/cnitool",
		"github.com/capture-cni/capture-cni/plugin/capture-cni",
		"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup",
	} {
		args := append([]string{"build", "-trimpath", "-o", directory + "/"}, flags...)
		build := exec.CommandContext(ctx, "go", append(args, target)...)
		build.Dir, build.Env = project, append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w: %s", target, err, out)
		}
	}
	return nil
}
