// SPDX-License-Identifier: Apache-2.0

// Package trust checks that configured paths are in allowed directories, and opens files and directories
// that only root can write.
package trust

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

// Untrusted is the error for a path outside the allowed directories, and for a file or directory of the
// configuration that is invalid, or that users other than root can write.
type Untrusted string

func (u Untrusted) Error() string { return string(u) }

// Untrustedf returns an Untrusted error.
func Untrustedf(format string, args ...any) error { return Untrusted(fmt.Sprintf(format, args...)) }

// CheckPaths returns an error if a path in a configuration is not in an allowed directory. It does not
// open the paths. Errors: Untrusted.
func CheckPaths(conf config.NetConf) error {
	err := CheckPath("kubeconfig", conf.Kubeconfig)
	if conf.AgentSocket != "" {
		err = errors.Join(err, CheckPath("agentSocket", conf.AgentSocket))
	}
	return err
}

// CheckPath returns an error if the directory of a configured file is not allowed. The allowed
// directories are config.Directories, those in config.DirectoriesFile, and the one in
// config.DirectoryVariable.
func CheckPath(key, path string) error {
	directory := filepath.Dir(path)
	if slices.Contains(config.Directories(), directory) || directory == os.Getenv(config.DirectoryVariable) {
		return nil
	}
	list, listed, err := listedDirectories()
	if err != nil {
		return err
	}
	if !slices.Contains(listed, directory) {
		return Untrustedf("configuration key %q is %q: "+
			"expected %s in %s, in a directory that %s lists, or in that of the environment variable %s",
			key, path, filepath.Base(path), strings.Join(config.Directories(), " or "), list, config.DirectoryVariable)
	}
	return nil
}

// listedDirectories reads config.DirectoriesFile next to this executable. If there is no such file, it
// returns no directories.
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
	defer func() { _ = root.Close() }() // a failed close loses nothing, because the directory was only read
	content, err := Read(root, config.DirectoriesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil, nil
	}
	if err != nil {
		return list, nil, err
	}
	if directories, err = config.ParseDirectories(content); err != nil {
		return list, nil, Untrustedf("%s: %v", list, err)
	}
	return list, directories, nil
}

// OpenDirectory opens a directory, and returns an error if users other than root can write to it.
func OpenDirectory(directory string) (*os.Root, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", directory, err)
	}
	info, err := root.Stat(".")
	if err == nil {
		err = checkOwner(directory, info)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// maxFile limits the bytes of a file that Read reads.
const maxFile = 1 << 20

// Read reads a regular file, and returns an error if users other than root can write to it. Symbolic
// links must not lead out of the directory root. Errors: fs.ErrNotExist; Untrusted.
func Read(root *os.Root, name string) ([]byte, error) {
	path := filepath.Join(root.Name(), name)
	file, err := openWithin(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if err != nil {
		return nil, Untrustedf("reading %s: %v", path, err)
	}
	defer func() { _ = file.Close() }() // a failed close loses nothing, because the file was only read
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, Untrustedf("%s is of mode %s: expected a regular file", path, info.Mode())
	}
	if err := checkOwner(path, info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, Untrustedf("%s: expected at most %d bytes", path, maxFile)
	}
	return data, nil
}

// openWithin opens a file, and follows symbolic links that stay in the directory root. os.Root itself
// refuses all absolute links, such as the kubelet's link to its current certificate.
func openWithin(root *os.Root, name string) (*os.File, error) {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // opening a pipe must not block
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

// CheckOwner returns an error if a file does not belong to this process's user, which is root, or
// grants other users a permission in mask.
func CheckOwner(path string, info fs.FileInfo, mask fs.FileMode) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch granted := info.Mode().Perm() & mask; {
	case !ok:
		return errors.New("reading the owner of " + path)
	case int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to uid %d: expected root", path, stat.Uid)
	case granted&0o022 != 0:
		return fmt.Errorf("%s can be written by other users than root (mode %s): expected no write permission for group and others",
			path, info.Mode())
	case granted != 0:
		return fmt.Errorf("%s grants permissions to other users than root (mode %s): expected no permission for group and others",
			path, info.Mode())
	}
	return nil
}

// checkOwner returns an error if users other than root can write to a file that configures the plugin.
// Errors: Untrusted.
func checkOwner(path string, info fs.FileInfo) error {
	if err := CheckOwner(path, info, 0o022); err != nil {
		return Untrusted(err.Error())
	}
	return nil
}
