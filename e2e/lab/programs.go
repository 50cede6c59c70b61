// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
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
	return build(ctx, directory, []string{"GOARCH=" + architecture}, append(flags,
		"github.com/containernetworking/plugins/plugins/main/bridge",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
		"github.com/containernetworking/cni/cnitool",
		"./plugin/capture-cni", "./plugin/capture-cni-lookup"))
}

// Build builds programs of the project into a directory, as small as a release's: each check
// of an agent reads those that it installs.
func Build(ctx context.Context, directory string, sources ...string) error {
	return build(ctx, directory, nil, append([]string{"-ldflags=-s -w"}, sources...))
}

func build(ctx context.Context, directory string, environment, arguments []string) error {
	project, err := Project(ctx)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", directory + "/"}, arguments...)...)
	command.Dir, command.Env = project, slices.Concat(os.Environ(), []string{"CGO_ENABLED=0"}, environment)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", arguments, err, out)
	}
	return nil
}
