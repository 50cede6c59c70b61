// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/e2e/debian"
)

// Fetch returns a kernel that is kept below a directory, and fetches it if there is none.
func Fetch(ctx context.Context, k Kernel, kept string) (Image, error) {
	root, err := debian.Unpack(ctx, kept, debian.Request{
		Suite: k.Suite, Architecture: k.Architecture.Name, Meta: []string{k.Architecture.Package},
		Without: []string{"kmod", "linux-base", "initramfs-tools"},
	})
	if err != nil {
		return Image{}, err
	}
	image, err := find(root, k.Architecture)
	if err != nil {
		return Image{}, err
	}
	_, err = output(exec.CommandContext(ctx, "depmod", "--basedir", root, filepath.Base(image.Modules)))
	return image, err
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
