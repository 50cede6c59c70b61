// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrGone says that the mirror answers and has no such kernel any more.
var ErrGone = errors.New("the mirror no longer has it")

// Fetch returns a kernel that is kept below a directory, and fetches it if there is none.
func Fetch(ctx context.Context, k Kernel, kept string) (Image, error) {
	root, err := filepath.Abs(filepath.Join(kept, k.Release))
	if err != nil {
		return Image{}, err
	}
	if found, err := image(root); err == nil {
		return found, nil
	}
	unfinished := root + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return Image{}, err
	}
	defer func() { _ = os.RemoveAll(unfinished) }()
	if err := download(ctx, k, unfinished); err != nil {
		return Image{}, fmt.Errorf("fetching %s of Debian's %s: %w", k, k.Suite, err)
	}
	if err := errors.Join(os.RemoveAll(root), os.Rename(unfinished, root)); err != nil {
		return Image{}, err
	}
	return image(root)
}

// download unpacks the newest package of a suite, with an index of its modules.
func download(ctx context.Context, k Kernel, root string) error {
	mirror, err := securityMirror(ctx)
	if err != nil {
		return err
	}
	a, err := newApt(mirror, k.Suite, filepath.Join(root, "apt"))
	if err != nil {
		return err
	}
	if err := a.update(ctx); err != nil {
		return err
	}
	name, err := a.kernelPackage(ctx)
	if err != nil {
		return err
	}
	if _, err := a.run(ctx, "apt-get", "download", name); err != nil {
		return err
	}
	archive, err := single(filepath.Join(a.dir, "*.deb"))
	if err != nil {
		return err
	}
	if _, err := output(exec.CommandContext(ctx, "dpkg-deb", "--extract", archive, root)); err != nil {
		return err
	}
	// Since Debian 13, /lib is /usr/lib in packages, too.
	if _, err := os.Stat(filepath.Join(root, "lib")); errors.Is(err, os.ErrNotExist) {
		if err := os.Rename(filepath.Join(root, "usr", "lib"), filepath.Join(root, "lib")); err != nil {
			return err
		}
	}
	modules, err := single(filepath.Join(root, "lib", "modules", "*"))
	if err != nil {
		return err
	}
	if _, err := output(exec.CommandContext(ctx, "depmod", "--basedir", root, filepath.Base(modules))); err != nil {
		return err
	}
	identity := strings.TrimSuffix(filepath.Base(archive), ".deb")
	return errors.Join(os.RemoveAll(a.dir), os.WriteFile(filepath.Join(root, "package"), []byte(identity), 0o644))
}

// output runs a command in English; an error contains all that it printed.
func output(command *exec.Cmd) (string, error) {
	command.Env = append(os.Environ(), "LC_ALL=C")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", strings.Join(command.Args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}
