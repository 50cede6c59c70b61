// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mode is what a new file is allowed.
type Mode struct {
	perm fs.FileMode
	keep bool
}

// As gives a file exactly these permissions, and to root.
func As(perm fs.FileMode) Mode { return Mode{perm: perm} }

// Kept leaves a file that exists its permissions and its owner.
func Kept(perm fs.FileMode) Mode { return Mode{perm: perm, keep: true} }

// Replace writes a file in one step, as others see it: a temporary file in the
// same folder, written, tried where try is not nil, synced and renamed. try
// gets the temporary file's path; its error leaves everything as it was.
func (d *Dir) Replace(name string, content []byte, mode Mode, try func(path string) error) error {
	return d.ReplaceFrom(name, bytes.NewReader(content), mode, try)
}

// ReplaceFrom is Replace for what is too large to be held in memory.
func (d *Dir) ReplaceFrom(name string, content io.Reader, mode Mode, try func(path string) error) error {
	if err := d.write(name, content, mode, try); err != nil {
		return err
	}
	return d.sync()
}

func (d *Dir) write(name string, content io.Reader, mode Mode, try func(path string) error) (err error) {
	temp := tempName()
	d.step("create " + temp)
	file, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing in %s: %w", d.path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing %s in %s: %w", name, d.path, err), d.root.Remove(temp))
		}
	}()
	d.step("write " + temp)
	_, writeErr := io.Copy(file, content)
	if err := errors.Join(writeErr, d.likeOld(file, name, mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if try != nil {
		d.step("try " + temp)
		if err := try(d.path + "/" + temp); err != nil {
			return err
		}
	}
	d.step("rename " + temp + " to " + name)
	return d.root.Rename(temp, name)
}

// selinux is the extended attribute that holds a file's label.
const selinux = "security.selinux"

// likeOld gives a new file the permissions asked for and, of the file in whose
// place it comes, the label, without which a confined runtime can't use it.
func (d *Dir) likeOld(file *os.File, name string, mode Mode) error {
	info, err := d.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return file.Chmod(mode.perm)
	}
	if err != nil {
		return err
	}
	old, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer old.Close()
	perm := mode.perm
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && mode.keep {
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
		return nil // the node has no SELinux, or the file no label
	}
	err = unix.Fsetxattr(int(to.Fd()), selinux, label[:n], 0)
	if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM) { // a label of earlier days means nothing while SELinux is off
		return fmt.Errorf("setting the SELinux label: %w", err)
	}
	return nil
}
