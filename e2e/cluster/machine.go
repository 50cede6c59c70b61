// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// cgroupFolders are the folders of a cgroup, one for each mounted hierarchy.
func cgroupFolders(name string) ([]string, error) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{filepath.Join("/sys/fs/cgroup", name)}, nil
	}
	entries, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		return nil, fmt.Errorf("listing cgroup hierarchies: %w", err)
	}
	var folders []string
	for _, entry := range entries {
		if entry.IsDir() {
			folders = append(folders, filepath.Join("/sys/fs/cgroup", entry.Name(), name))
		}
	}
	return folders, nil
}

// makeCgroups makes the root that a node's pods live below: kubelets must not
// share one.
func makeCgroups(name string) error {
	folders, err := cgroupFolders(name)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("making a cgroup: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new one of version 1
			parents, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(folder, file), parents, 0); err != nil {
				return fmt.Errorf("filling a cgroup: %w", err)
			}
		}
	}
	return nil
}

// removeCgroups removes a cgroup with all below it, which no process is in any
// more; the kernel may take a moment to notice.
func removeCgroups(name string) error {
	folders, err := cgroupFolders(name)
	if err != nil {
		return err
	}
	var errs []error
	for _, folder := range folders {
		for deadline := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
			err = removeTree(folder)
			if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
				break
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeTree removes folders only: the files of a cgroup go with it.
func removeTree(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeTree(filepath.Join(folder, entry.Name())))
		}
	}
	if err := syscall.Rmdir(folder); err != nil && !errors.Is(err, syscall.ENOENT) {
		errs = append(errs, fmt.Errorf("removing %s: %w", folder, err))
	}
	return errors.Join(errs...)
}
