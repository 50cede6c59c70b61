// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// programDirectory is where a guest has the plugin and other programs that tests
// execute, and the tests themselves.
const programDirectory = "/programs"

// Suite is an initramfs with what all guests have in common: tests of some packages, and
// what they execute.
type Suite struct{ content []byte }

// Build makes the tests of packages, which are named from the project's directory, for a
// kernel's architecture, and what they execute. directory gets what it compiles; Debian's
// packages are kept below another.
func Build(ctx context.Context, directory, kept string, k Kernel, packages ...string) (Suite, error) {
	root, err := k.Architecture.root(ctx, k.Suite, kept)
	if err != nil {
		return Suite{}, err
	}
	if err := lab.BuildPrograms(ctx, directory, k.Architecture.Name, buildFlags...); err != nil {
		return Suite{}, err
	}
	for _, name := range []string{"guest", "attempt"} {
		if err := build(ctx, k.Architecture, "e2e/kernels/"+name, "build", "-o", filepath.Join(directory, name)); err != nil {
			return Suite{}, err
		}
	}
	a := newArchive()
	if err := a.addPrograms(root, k.Architecture); err != nil {
		return Suite{}, err
	}
	for _, name := range packages {
		if err := build(ctx, k.Architecture, name, "test", "-c", "-o", filepath.Join(directory, testProgram(name))); err != nil {
			return Suite{}, err
		}
		if err := a.addTestdata(ctx, name); err != nil {
			return Suite{}, err
		}
	}
	a.link("/init", filepath.Join(programDirectory, "guest"))
	err = a.copy(programDirectory, directory)
	return Suite{a.bytes()}, err
}

// buildFlags leave out what no test needs, and what differs between two checkouts of the
// same sources.
var buildFlags = []string{"-trimpath", "-buildvcs=false", "-ldflags=-s -w"}

// build runs a command of go in a package's directory: some packages are of modules of their
// own.
func build(ctx context.Context, architecture *Architecture, name string, command ...string) error {
	project, err := lab.Project(ctx)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "go", append(slices.Insert(command, 1, buildFlags...), ".")...)
	c.Dir, c.Env = filepath.Join(project, name), append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture.Name)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", name, err, out)
	}
	return nil
}

// testProgram is the name of a package's compiled tests.
func testProgram(name string) string { return filepath.Base(name) + ".test" }

// workingDirectory is where a guest runs a package's tests.
func workingDirectory(name string) string { return filepath.Join("/sources", name) }

// addTestdata copies the files that a package's tests read.
func (a *archive) addTestdata(ctx context.Context, name string) error {
	a.directory(workingDirectory(name))
	project, err := lab.Project(ctx)
	if err != nil {
		return err
	}
	err = a.copy(filepath.Join(workingDirectory(name), "testdata"), filepath.Join(project, name, "testdata"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
