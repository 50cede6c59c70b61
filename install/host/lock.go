// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process has the lock.
var ErrLocked = errors.New("another process is at work in the folder")

// TryLock takes the folder's lock, which ends with the process, or gives
// ErrLocked at once.
func (d *Dir) TryLock(name string) (io.Closer, error) {
	file, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock in %s: %w", d.path, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", d.path, err), file.Close())
	}
	return file, nil
}
