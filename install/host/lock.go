// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process holds the lock.
var ErrLocked = errors.New("another process holds the directory's lock")

// TryLock locks the directory, or returns ErrLocked at once. The kernel releases
// the lock when the process ends. It needs no lock file, so it works on a full disk.
func (d *Dir) TryLock() (io.Closer, error) {
	directory, err := d.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", d.path, err)
	}
	err = unix.Flock(int(directory.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", d.path, err), directory.Close())
	}
	return directory, nil
}
