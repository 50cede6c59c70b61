// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// With Multus, a user of one namespace can choose the plugin's configuration by a
// NetworkAttachmentDefinition, but must not choose the plugin's credentials. So the plugin reads
// credentials only from allowed directories: StateDirectory, RunDirectory, and those that
// DirectoriesFile and DirectoryVariable name.
const (
	// StateDirectory persists across reboots.
	StateDirectory = "/var/lib/capture-cni"
	// RunDirectory is on tmpfs and empty after a reboot.
	RunDirectory    = "/run/capture-cni"
	KubeconfigName  = "kubeconfig"
	AgentSocketName = "agent.sock"

	// SocketsName is the name of a directory next to the agent's socket. It contains only sockets, so
	// that containers that need no other file of the agent can mount it.
	SocketsName    = "sockets"
	podsSocketName = "pods.sock"

	// LookupProgram is the name of the program that reads a pod from the API server, in the directory
	// of the plugin's executable.
	LookupProgram = "capture-cni-lookup"

	// DirectoriesFile is the name of root's file, next to the plugin's executable, that lists more
	// directories from which the plugin may read credentials.
	DirectoriesFile = "capture-cni.dirs"
	// DirectoryVariable is the environment variable that names one more directory from which the plugin
	// may read credentials. It is for manual calls.
	DirectoryVariable = "CAPTURE_CNI_DIR"
)

// PodsSocket returns the path of the socket at which the agent answers requests for pods.
func PodsSocket(agentSocket string) string {
	return filepath.Join(filepath.Dir(agentSocket), SocketsName, podsSocketName)
}

// GuardSocket returns the path of a hard link to the agent's socket. The guard's container mounts the
// directory of the link, but not that of the socket.
func GuardSocket(agentSocket string) string {
	return filepath.Join(filepath.Dir(agentSocket), SocketsName, AgentSocketName)
}

// Directories returns the directories from which the plugin may read credentials without further
// configuration.
func Directories() []string { return []string{StateDirectory, RunDirectory} }

const maxDirectories = 64 // in a DirectoriesFile

// ParseDirectories reads the content of a DirectoriesFile, which has one absolute path a line. It
// ignores empty lines and lines that begin with #. It returns an error for a path that is relative or not
// clean, and for more than maxDirectories paths.
func ParseDirectories(content []byte) ([]string, error) {
	var directories []string
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !filepath.IsAbs(line) || filepath.Clean(line) != line {
			return nil, fmt.Errorf("%q: expected an absolute path without ., .., // or a trailing slash", line)
		}
		if len(directories) == maxDirectories {
			return nil, fmt.Errorf("expected at most %d directories", maxDirectories)
		}
		directories = append(directories, line)
	}
	return directories, nil
}

// FormatDirectories returns the content of a DirectoriesFile.
func FormatDirectories(directories []string) []byte {
	return []byte("# Directories that capture-cni may read credentials from, besides " + strings.Join(Directories(), " and ") + ".\n" +
		strings.Join(slices.Concat(directories, []string{""}), "\n"))
}
