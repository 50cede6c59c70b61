// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/trust"
)

// LockDirectory contains the file by which processes of capture-cni lock network namespaces. They do
// not lock the namespace's own file, because any process of the pod can lock it as /proc/self/ns/net.
// The path is a constant, so that the plugin and the guard always use the same file.
const LockDirectory = "/run/capture-cni/lock"

const lockName = "netns"

// ErrBusy means that another process holds the namespace's lock.
var ErrBusy = errors.New("another process of capture-cni holds the lock of the network namespace")

const lockPoll = 5 * time.Millisecond

// foreignLock is the error if a process outside capture-cni holds a read lock or a lease on the file,
// for which read access is enough, for example by a hostPath volume. This must not delay a pod, so the
// caller continues without a lock.
type foreignLock struct{}

func (foreignLock) Error() string {
	file := LockDirectory + "/" + lockName
	return fmt.Sprintf("a process outside capture-cni holds a lock or a lease on %s: "+
		"find it with lsof %s, and remove the hostPath volume of %s from its pod", file, file, filepath.Dir(LockDirectory))
}

// takeLock takes the lock of a namespace. While another process of capture-cni holds the lock, takeLock
// waits until ctx ends. releaseLock releases the lock. Errors: ErrBusy, foreignLock.
func takeLock(ctx context.Context, inode uint64) (*os.File, error) {
	for {
		taken, err := tryLock(inode)
		if !errors.Is(err, ErrBusy) {
			return taken, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// tryLock locks one byte of the file LockDirectory/netns. The byte's offset is the namespace's inode
// number, which no other namespace has while this one is open. The lock of a killed process needs no
// cleanup, because it belongs to the open file (F_OFD_SETLK in fcntl(2)). Errors: ErrBusy, foreignLock.
func tryLock(inode uint64) (*os.File, error) {
	file, err := openLock()
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil, foreignLock{}
	case err != nil:
		return nil, fmt.Errorf("opening the lock of network namespaces: %w", err)
	}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, own(inode))
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES):
		err = ErrBusy
		if isForeign(file, inode) {
			err = foreignLock{}
		}
	case err != nil:
		err = fmt.Errorf("locking %s: %w", file.Name(), err)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// releaseLock unlocks the file before it closes it. A child of this process that is between fork and
// exec has the file open, too, and would otherwise hold the lock until exec.
func releaseLock(file *os.File) error {
	all := &unix.Flock_t{Type: unix.F_UNLCK}
	return errors.Join(unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, all), file.Close())
}

// own returns the write lock that processes of capture-cni take for a namespace.
func own(inode uint64) *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(inode), Len: 1}
}

func isForeign(file *os.File, inode uint64) bool {
	found := own(inode)
	err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, found)
	return err == nil && found.Type == unix.F_RDLCK
}

// openLock opens the lock file, and creates it if it is missing. It returns an error if a user other
// than root could open or replace the file. With O_NONBLOCK, the kernel returns EAGAIN while another
// process holds a lease, instead of waiting up to 45 s.
func openLock() (*os.File, error) {
	root, err := os.OpenRoot(LockDirectory)
	if errors.Is(err, fs.ErrNotExist) {
		root, err = makeLockDirectory()
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // the lock only needs the file, which stays open
	directory, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	file, err := root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = errors.Join(trust.CheckOwner(LockDirectory, directory, 0o022), trust.CheckOwner(file.Name(), info, 0o077))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func makeLockDirectory() (*os.Root, error) {
	if err := os.MkdirAll(filepath.Dir(LockDirectory), 0o755); err != nil {
		return nil, fmt.Errorf("%w: /run must be writable for root", err)
	}
	if err := os.Mkdir(LockDirectory, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: %s must be writable for root", err, filepath.Dir(LockDirectory))
	}
	return os.OpenRoot(LockDirectory)
}
