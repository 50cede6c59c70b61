// SPDX-License-Identifier: Apache-2.0

// Package debian fetches packages of any suite of Debian and unpacks them into
// directories of their own. It installs nothing, and does not touch the machine's apt.
package debian

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrGone says that the mirror does not have the suite, or a package of it.
var ErrGone = errors.New("not on the mirror")

// Request names packages of one suite.
type Request struct {
	Suite        string   // such as bullseye or bookworm-backports
	Architecture string   // such as arm64; empty for the machine's own
	Packages     []string // what they depend on is fetched, too
	Meta         []string // packages without files, in whose place the packages are fetched that they depend on
	Without      []string // dependencies that count as installed, with what they depend on
}

// Unpack returns a directory below parent with the packages unpacked into it. It fetches
// them unless an earlier call with the same request did.
func Unpack(ctx context.Context, parent string, r Request) (root string, err error) {
	root = filepath.Join(parent, r.name())
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	unfinished, err := os.MkdirTemp(parent, ".unfinished-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(unfinished)) }()
	if err := r.unpack(ctx, unfinished); err != nil {
		return "", fmt.Errorf("fetching %s of Debian's %s: %w", strings.Join(slices.Concat(r.Packages, r.Meta), ", "), r.Suite, err)
	}
	if err := os.Rename(unfinished, root); err != nil && !isDirectory(root) { // else another process was faster
		return "", err
	}
	return root, nil
}

func (r Request) name() string {
	digest := sha256.Sum256(fmt.Appendf(nil, "%q", r))
	return fmt.Sprintf("%s-%x", r.Suite, digest[:4])
}

func (r Request) unpack(ctx context.Context, root string) (err error) {
	work, err := os.MkdirTemp("", "apt")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	archives, err := apt{directory: work, mirror: mirror(ctx, r.Suite), architecture: r.Architecture}.fetch(ctx, r)
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", archive, root).CombinedOutput(); err != nil {
			return fmt.Errorf("unpacking %s: %w: %s", filepath.Base(archive), err, out)
		}
	}
	if err := mergeUsr(root); err != nil {
		return err
	}
	if err := recordPackages(root, archives); err != nil {
		return err
	}
	return os.Chmod(root, 0o755) // programs of other users must reach it
}

// mergeUsr adds the links that base-files has where a suite keeps all files below /usr.
func mergeUsr(root string) error {
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		link := filepath.Join(root, name)
		if isDirectory(link) || !isDirectory(filepath.Join(root, "usr", name)) {
			continue
		}
		if err := os.Symlink(filepath.Join("usr", name), link); err != nil {
			return err
		}
	}
	return nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
