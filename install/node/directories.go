// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
)

// ownDirectories returns those directories of the credentials and of the sockets that the plugin does not
// allow by default.
func ownDirectories(s Settings) []string {
	var own []string
	for _, directory := range []string{s.StateDir, s.RunDir} {
		directory = filepath.Clean(directory)
		if !slices.Contains(config.Directories(), directory) && !slices.Contains(own, directory) {
			own = append(own, directory)
		}
	}
	return own
}

// listDirectories adds our directories to config.DirectoriesFile. It keeps other directories there,
// which the node's image may have listed.
func listDirectories(s Settings, bin *host.Dir) error {
	listed, missing, err := missingDirectories(s, bin)
	if err != nil || len(missing) == 0 {
		return err
	}
	return bin.Ensure(config.DirectoriesFile, config.FormatDirectories(append(listed, missing...)))
}

// directoriesFault returns an error if config.DirectoriesFile does not contain our directories.
func directoriesFault(s Settings, bin *host.Dir) error {
	_, missing, err := missingDirectories(s, bin)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%s/%s does not list %s: the plugin would refuse files there",
			bin.Path(), config.DirectoriesFile, strings.Join(missing, ", "))
	}
	return err
}

// missingDirectories returns the directories that config.DirectoriesFile lists, and those of
// ownDirectories that it lacks. If ownDirectories returns none, missingDirectories reads no file.
func missingDirectories(s Settings, bin *host.Dir) (listed, missing []string, err error) {
	own := ownDirectories(s)
	if len(own) == 0 {
		return nil, nil, nil
	}
	content, err := bin.Read(config.DirectoriesFile)
	if host.IsAbsent(err) {
		return nil, own, nil
	}
	if err != nil {
		return nil, nil, err
	}
	listed, err = config.ParseDirectories(content)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s/%s: %w", bin.Path(), config.DirectoriesFile, err)
	}
	return listed, slices.DeleteFunc(own, func(directory string) bool { return slices.Contains(listed, directory) }), nil
}
