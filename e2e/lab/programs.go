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

// Project returns the project's root directory. It works in each of the project's modules.
func Project(ctx context.Context) (string, error) {
	uncached()
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/capture-cni/capture-cni").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module's directory: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// BuiltPrograms is the environment variable that names a directory with programs that were built before,
// because the machine that runs the tests may lack a compiler.
const BuiltPrograms = "CAPTURE_CNI_TEST_PROGRAMS"

// Programs returns a directory with the plugin, capture-cni-lookup, the reference plugins and cnitool.
// remove deletes the directory if Programs built it.
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

// BuildPrograms builds the content of the directory that Programs returns, for an architecture and with
// additional flags of go build.
func BuildPrograms(ctx context.Context, directory, architecture string, flags ...string) error {
	return build(ctx, directory, []string{"GOARCH=" + architecture}, append(flags,
		"github.com/containernetworking/plugins/plugins/main/bridge",
		"github.com/containernetworking/plugins/plugins/ipam/host-local",
		"github.com/containernetworking/cni/cnitool",
		"./plugin/capture-cni", "./plugin/capture-cni-lookup"))
}

// Build builds programs of the project into a directory, without symbols, as in a release, because an
// agent reads the programs that it installs at each check.
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
