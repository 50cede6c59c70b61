// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// untrusted is a file whose content somebody other than root may have chosen.
// With Multus, the configuration on stdin can come from a namespace's user;
// what it points at must not.
type untrusted string

func (u untrusted) Error() string { return string(u) }

func distrust(format string, args ...any) error { return untrusted(fmt.Sprintf(format, args...)) }

// readTrusted reads a file that is root's, in folders that are root's, along
// the whole path and every symbolic link on it.
func readTrusted(path string) ([]byte, error) {
	real, err := resolveTrusted(path)
	if err != nil {
		return nil, err
	}
	// Not a device or a pipe of root's, which may do things when it is merely
	// opened, or never end.
	if info, err := os.Lstat(real); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(distrust("%s: expected a regular file", path), err)
	}
	file, err := os.Open(real)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, distrust("%s: expected at most %d bytes", path, maxFile)
	}
	return data, nil
}

// maxFile is more than any kubeconfig, token or list of authorities.
const maxFile = 1 << 20

// maxLinks is the kernel's own limit (MAXSYMLINKS).
const maxLinks = 40

// resolveTrusted walks the path from the root, judging every component, and
// gives the path without symbolic links.
func resolveTrusted(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", distrust("%s: expected an absolute path", path)
	}
	rest := components(path)
	at := "/"
	if err := judge(at); err != nil {
		return "", err
	}
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if err := judge(next); err != nil {
				return "", err
			}
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", distrust("%s: more than %d symbolic links", path, maxLinks)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(components(target), rest...)
	}
	if strings.Contains(at+"/", "/kubelet/pods/") {
		return "", distrust("%s lies in the kubelet's pod folders, where pods choose the content", at)
	}
	return at, nil
}

func components(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// judge refuses what is not root's or what others can write to. In a sticky
// folder of root's they can't replace what is not theirs.
func judge(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("reading the owner of " + path)
	}
	if stat.Uid != 0 {
		return distrust("%s belongs to uid %d: expected root", path, stat.Uid)
	}
	const othersWrite = 0o022
	sticky := info.IsDir() && info.Mode()&fs.ModeSticky != 0
	if info.Mode().Perm()&othersWrite != 0 && !sticky {
		return distrust("%s can be written by others than root (mode %s): expected no write permission for group and others", path, info.Mode())
	}
	return nil
}
