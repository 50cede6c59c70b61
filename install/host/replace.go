// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kept means that the new file gets the permissions and the owner of the regular file that it replaces.
// If there was none, the new file gets mode 0600.
const Kept fs.FileMode = 0

// Ensure writes a file of the agent's own, with mode 0600, unless the file already has this content.
func (d *Dir) Ensure(name string, content []byte) error {
	if current, err := d.Read(name); err == nil && bytes.Equal(current, content) {
		return nil
	}
	return d.Replace(name, bytes.NewReader(content), 0o600, nil)
}

// Replace writes a file atomically. It writes and syncs a temporary file in the same directory, calls
// try, unless it is nil, with the temporary file's path, and then renames the file and syncs the
// directory. If an error occurs before the renaming, the old file stays.
func (d *Dir) Replace(name string, content io.Reader, perm fs.FileMode, try func(path string) error) error {
	if err := d.write(name, content, perm, try); err != nil {
		return err
	}
	return d.Sync()
}

func (d *Dir) write(name string, content io.Reader, perm fs.FileMode, try func(path string) error) (err error) {
	temp := tempName()
	defer func() { err = withoutTemp(err, temp, name) }()
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing in %s: %w", d.path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing %s in %s: %w", name, d.path, err), d.root.Remove(temp))
		}
	}()
	writeErr := d.root.before("write", temp)
	if writeErr == nil {
		_, writeErr = io.Copy(file, content)
	}
	if err := errors.Join(writeErr, d.copyMetadata(file, name, perm), d.root.before("sync", temp), file.Sync(), file.Close()); err != nil {
		return err
	}
	if try != nil {
		if err := try(d.path + "/" + temp); err != nil {
			return err
		}
	}
	return d.root.Rename(temp, name)
}

// withoutTemp returns the error with the file's name instead of the temporary one. The same fault must
// always have the same text, because the agent logs, posts and publishes each text that is new.
func withoutTemp(err error, temp, name string) error {
	if err == nil {
		return nil
	}
	return renamed{err, strings.ReplaceAll(err.Error(), temp, name)}
}

type renamed struct {
	error
	text string
}

func (r renamed) Error() string { return r.text }
func (r renamed) Unwrap() error { return r.error }

const selinux = "security.selinux"

// copyMetadata sets the new file's mode and, for Kept, its owner. It also copies the SELinux label of the
// old file, because a confined runtime may be unable to read a file without this label.
func (d *Dir) copyMetadata(file *os.File, name string, perm fs.FileMode) error {
	info, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return file.Chmod(cmp.Or(perm, 0o600))
	}
	if err != nil {
		return err
	}
	old, err := d.Open(name) // Open returns an error for a pipe
	if err != nil {
		return err
	}
	defer old.Close()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && perm == Kept {
		perm = info.Mode().Perm()
		if err := file.Chown(int(stat.Uid), int(stat.Gid)); err != nil {
			return err
		}
	}
	return errors.Join(file.Chmod(perm), copyLabel(old, file))
}

func copyLabel(from, to *os.File) error {
	label := make([]byte, 256)
	n, err := unix.Fgetxattr(int(from.Fd()), selinux, label)
	if err != nil {
		return nil // without SELinux, or without a label
	}
	err = unix.Fsetxattr(int(to.Fd()), selinux, label[:n], 0)
	if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) { // without SELinux, the label has no effect
		return fmt.Errorf("setting the SELinux label: %w", err)
	}
	return nil
}
