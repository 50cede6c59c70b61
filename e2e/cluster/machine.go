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

// cgroupDirectories returns the directories of a cgroup, one for each mounted hierarchy.
func cgroupDirectories(name string) ([]string, error) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{filepath.Join("/sys/fs/cgroup", name)}, nil
	}
	entries, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		return nil, fmt.Errorf("listing cgroup hierarchies: %w", err)
	}
	var directories []string
	for _, entry := range entries {
		if entry.IsDir() {
			directories = append(directories, filepath.Join("/sys/fs/cgroup", entry.Name(), name))
		}
	}
	return directories, nil
}

// makeCgroups creates the root cgroup of a node's pods: kubelets must not share one.
func makeCgroups(name string) error {
	directories, err := cgroupDirectories(name)
	if err != nil {
		return err
	}
	for _, directory := range directories {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return fmt.Errorf("creating a cgroup: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new one of version 1
			parents, err := os.ReadFile(filepath.Join(filepath.Dir(directory), file))
			if err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(directory, file), parents, 0); err != nil {
				return fmt.Errorf("initializing a cgroup: %w", err)
			}
		}
	}
	return nil
}

// removeCgroups removes a cgroup with all below it, whose processes have ended.
// It retries: the kernel may still be busy with that.
func removeCgroups(name string) error {
	directories, err := cgroupDirectories(name)
	if err != nil {
		return err
	}
	var errs []error
	for _, directory := range directories {
		for deadline := time.Now().Add(Timeout); ; time.Sleep(20 * time.Millisecond) {
			err = removeTree(directory)
			if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
				break
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeTree removes directories alone: the kernel removes a cgroup's files.
func removeTree(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeTree(filepath.Join(directory, entry.Name())))
		}
	}
	if err := syscall.Rmdir(directory); err != nil && !errors.Is(err, syscall.ENOENT) {
		errs = append(errs, fmt.Errorf("removing %s: %w", directory, err))
	}
	return errors.Join(errs...)
}
