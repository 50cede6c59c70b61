// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// With Multus, the configuration on stdin can come from a namespace's user. It
// must not choose where credentials come from, so the plugin takes them from
// allowed directories alone: the two below, those that DirectoriesFile lists,
// and the one that DirectoryVariable names.
const (
	// StateDirectory survives a boot.
	StateDirectory = "/var/lib/capture-cni"
	// RunDirectory is new after a boot.
	RunDirectory = "/run/capture-cni"

	// KubeconfigName and AgentSocketName are the files' names in a directory.
	KubeconfigName  = "kubeconfig"
	AgentSocketName = "agent.sock"

	// DirectoriesFile stands next to the plugin's executable, is root's own and
	// lists more allowed directories.
	DirectoriesFile = "capture-cni.dirs"
	// DirectoryVariable is an environment variable that allows one more, for
	// calls by hand.
	DirectoryVariable = "CAPTURE_CNI_DIR"
)

// Directories are always allowed.
func Directories() []string { return []string{StateDirectory, RunDirectory} }

// maxDirectories bounds DirectoriesFile.
const maxDirectories = 64

// ParseDirectories reads the content of a DirectoriesFile: one absolute path a
// line; empty lines and those that begin with # don't count.
func ParseDirectories(content []byte) ([]string, error) {
	var directories []string
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !filepath.IsAbs(line) || filepath.Clean(line) != line {
			return nil, fmt.Errorf("%q: expected an absolute path without . and .. and without a slash at its end", line)
		}
		if len(directories) == maxDirectories {
			return nil, fmt.Errorf("expected at most %d directories", maxDirectories)
		}
		directories = append(directories, line)
	}
	return directories, nil
}

// FormatDirectories writes what ParseDirectories reads.
func FormatDirectories(directories []string) []byte {
	return []byte("# Directories that capture-cni may read credentials from, besides " + strings.Join(Directories(), " and ") + ".\n" +
		strings.Join(slices.Concat(directories, []string{""}), "\n"))
}
