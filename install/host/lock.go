// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// ErrLocked means that another process has the lock.
var ErrLocked = errors.New("another process is at work in the folder")

// TryLock takes the folder's lock, which ends with the process, or gives
// ErrLocked at once. It is on the folder itself: a full disk is no hindrance.
func (d *Dir) TryLock() (io.Closer, error) {
	folder, err := d.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", d.path, err)
	}
	err = unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", d.path, err), folder.Close())
	}
	return folder, nil
}
