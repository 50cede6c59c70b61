// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxRead limits the bytes that ReadFile and Read read from one file. The files that the agent expects
// have a few KiB.
const maxRead = 4 << 20

// ErrNotRegular is the error for a path that is not a regular file, such as a pipe, a directory or a
// device.
var ErrNotRegular = errors.New("not a regular file")

var errTooLarge = errors.New("larger than 4 MiB")

// IsAbsent reports whether an error means that no regular file exists at the path.
func IsAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotRegular) }

// readOnly contains the flags to open a file for reading. Without O_NONBLOCK, opening a pipe that has
// no writer would wait forever.
const readOnly = os.O_RDONLY | unix.O_NONBLOCK

// Open opens a regular file for reading. Errors: ErrNotRegular.
func Open(path string) (*os.File, error) { return regular(os.OpenFile(path, readOnly, 0)) }

// OpenIn opens a regular file in a directory for reading. Errors: ErrNotRegular.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	return regular(root.OpenFile(name, readOnly, 0))
}

// ReadFile returns a regular file's content.
func ReadFile(path string) ([]byte, error) { return readAll(Open(path)) }

// Open opens a regular file of the directory for reading. Errors: ErrNotRegular.
func (d *Dir) Open(name string) (*os.File, error) {
	file, err := regular(d.root.OpenFile(name, readOnly, 0))
	if err != nil {
		return nil, fmt.Errorf("reading in %s: %w", d.path, err)
	}
	return file, nil
}

// Read returns a regular file's content.
func (d *Dir) Read(name string) ([]byte, error) { return readAll(d.Open(name)) }

// regular returns a file if it is a regular file. Otherwise it closes the file and returns
// ErrNotRegular. Other programs can create any kind of file in a directory that they share with the
// agent, and reading a pipe could block forever.
func regular(file *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: file.Name(), Err: ErrNotRegular}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func readAll(file *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxRead+1))
	if err == nil && len(content) > maxRead {
		return nil, &os.PathError{Op: "read", Path: file.Name(), Err: errTooLarge}
	}
	return content, err
}
