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
	"syscall"

	"golang.org/x/sys/unix"
)

// Kept stands for the permissions and the owner of the file that is replaced. A new file
// gets mode 0600.
const Kept fs.FileMode = 0

// Ensure replaces a file of the agent's own, of mode 0600, unless it has the content.
func (d *Dir) Ensure(name string, content []byte) error {
	if current, err := d.Read(name); err == nil && bytes.Equal(current, content) {
		return nil
	}
	return d.Replace(name, bytes.NewReader(content), 0o600, nil)
}

// Replace writes a file atomically: it writes and syncs a temporary file in the
// same directory, calls try, if not nil, with that file's path, and renames it. If
// try returns an error, nothing has changed.
func (d *Dir) Replace(name string, content io.Reader, perm fs.FileMode, try func(path string) error) error {
	if err := d.write(name, content, perm, try); err != nil {
		return err
	}
	return d.sync()
}

func (d *Dir) write(name string, content io.Reader, perm fs.FileMode, try func(path string) error) (err error) {
	temp := tempName()
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing in %s: %w", d.path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing %s in %s: %w", name, d.path, err), d.root.Remove(temp))
		}
	}()
	_, writeErr := io.Copy(file, content)
	if err := errors.Join(writeErr, d.copyMetadata(file, name, perm), file.Sync(), file.Close()); err != nil {
		return err
	}
	if try != nil {
		if err := try(d.path + "/" + temp); err != nil {
			return err
		}
	}
	return d.root.Rename(temp, name)
}

// selinux is the extended attribute with a file's SELinux label.
const selinux = "security.selinux"

// copyMetadata sets the new file's mode and owner, and copies the SELinux label of
// the file that it replaces: a confined runtime can't read a file without it.
func (d *Dir) copyMetadata(file *os.File, name string, perm fs.FileMode) error {
	info, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return file.Chmod(cmp.Or(perm, 0o600))
	}
	if err != nil {
		return err
	}
	old, err := d.Open(name) // not a pipe by now
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
		return nil // no SELinux, or no label
	}
	err = unix.Fsetxattr(int(to.Fd()), selinux, label[:n], 0)
	if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) { // SELinux is off: the label has no effect
		return fmt.Errorf("setting the SELinux label: %w", err)
	}
	return nil
}
