// SPDX-License-Identifier: Apache-2.0

package podlookup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/capture-cni/capture-cni/config"
)

// Untrusted is a configuration that points outside of the allowed directories,
// or a file there that another user than root could have written.
type Untrusted string

func (u Untrusted) Error() string { return string(u) }

func distrust(format string, args ...any) error { return Untrusted(fmt.Sprintf(format, args...)) }

// TrustPaths judges the paths of a configuration before any of them is opened.
// Errors: Untrusted.
func TrustPaths(conf config.NetConf) error {
	err := TrustPath("kubeconfig", conf.Kubeconfig)
	if conf.AgentSocket != "" {
		err = errors.Join(err, TrustPath("agentSocket", conf.AgentSocket))
	}
	return err
}

// TrustPath reports an error where a configured file is not in an allowed
// directory; see config.Directories.
func TrustPath(key, path string) error {
	directory := filepath.Dir(path)
	if slices.Contains(config.Directories(), directory) || directory == os.Getenv(config.DirectoryVariable) {
		return nil
	}
	list, listed, err := listedDirectories()
	if err != nil {
		return err
	}
	if !slices.Contains(listed, directory) {
		return distrust("configuration key %q is %q: expected %s in %s, in a directory that %s lists, or in the one that the environment's %s names",
			key, path, filepath.Base(path), strings.Join(config.Directories(), " or "), list, config.DirectoryVariable)
	}
	return nil
}

// listedDirectories reads the list next to this executable; no list is an empty one.
func listedDirectories() (list string, directories []string, err error) {
	executable, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("finding the plugin's own executable: %w", err)
	}
	list = filepath.Join(filepath.Dir(executable), config.DirectoriesFile)
	root, err := os.OpenRoot(filepath.Dir(executable))
	if err != nil {
		return list, nil, fmt.Errorf("opening the plugin's own directory: %w", err)
	}
	defer func() { _ = root.Close() }() // it was only read from
	content, err := readTrusted(root, config.DirectoriesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil, nil
	}
	if err != nil {
		return list, nil, err
	}
	if directories, err = config.ParseDirectories(content); err != nil {
		return list, nil, distrust("%s: %v", list, err)
	}
	return list, directories, nil
}

// openTrusted opens a directory that is root's own.
func openTrusted(directory string) (*os.Root, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", directory, err)
	}
	info, err := root.Stat(".")
	if err == nil {
		err = judge(directory, info)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// maxFile is more than any kubeconfig, token or list of authorities.
const maxFile = 1 << 20

// readTrusted reads a regular file of root's that lies in root, links included.
func readTrusted(root *os.Root, name string) ([]byte, error) {
	path := filepath.Join(root.Name(), name)
	file, err := openWithin(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if err != nil {
		return nil, distrust("reading %s: %v", path, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, distrust("%s is of mode %s: expected a regular file", path, info.Mode())
	}
	if err := judge(path, info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, distrust("%s: expected at most %d bytes", path, maxFile)
	}
	return data, nil
}

const writableByOthers fs.FileMode = 0o022

// openWithin follows links as long as they stay in root. os.Root takes no
// absolute ones; the kubelet's link to its current certificate is one.
func openWithin(root *os.Root, name string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // a pipe must not hold up the open
	file, err := root.OpenFile(name, flags, 0)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	directory, dirErr := filepath.EvalSymlinks(root.Name())
	target, targetErr := filepath.EvalSymlinks(filepath.Join(root.Name(), name))
	if errors.Join(dirErr, targetErr) != nil {
		return nil, err
	}
	within, relErr := filepath.Rel(directory, target)
	if relErr != nil || !filepath.IsLocal(within) {
		return nil, err
	}
	return root.OpenFile(within, flags, 0)
}

// judge refuses what is not root's or what other users can write to.
func judge(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("reading the owner of " + path)
	}
	if stat.Uid != 0 {
		return distrust("%s belongs to uid %d: expected root", path, stat.Uid)
	}
	if info.Mode().Perm()&writableByOthers != 0 {
		return distrust("%s can be written by other users than root (mode %s): expected no write permission for group and others", path, info.Mode())
	}
	return nil
}
