// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
)

// ownDirectories are those from which the plugin has to take credentials and its
// agent's socket, as far as it does not allow them by itself.
func (s Settings) ownDirectories() []string {
	wanted := []string{s.StateDir, s.RunDir}
	if socket := s.Entry.Conf.AgentSocket; socket != "" {
		wanted = append(wanted, filepath.Dir(socket))
	}
	var own []string
	for _, directory := range wanted {
		directory = filepath.Clean(directory)
		if !slices.Contains(config.Directories(), directory) && !slices.Contains(own, directory) {
			own = append(own, directory)
		}
	}
	return own
}

// listDirectories makes the list next to the plugin hold our directories; what
// else it lists stays, which an image of the node may have brought.
func (s Settings) listDirectories(bin *host.Dir) error {
	fault := s.directoriesFault(bin)
	if fault == nil {
		return nil
	}
	listed, err := readDirectories(bin)
	if err != nil {
		return err
	}
	for _, directory := range s.ownDirectories() {
		if !slices.Contains(listed, directory) {
			listed = append(listed, directory)
		}
	}
	return bin.Replace(config.DirectoriesFile, config.FormatDirectories(listed), host.As(0o600), nil)
}

// directoriesFault reports which of our directories the plugin would refuse.
func (s Settings) directoriesFault(bin *host.Dir) error {
	own := s.ownDirectories()
	if len(own) == 0 {
		return nil
	}
	listed, err := readDirectories(bin)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(own, func(directory string) bool { return slices.Contains(listed, directory) })
	if len(missing) > 0 {
		return fmt.Errorf("%s/%s does not list %s: the plugin would refuse the credentials there", bin.Path(), config.DirectoriesFile, strings.Join(missing, ", "))
	}
	return nil
}

func readDirectories(bin *host.Dir) ([]string, error) {
	content, err := bin.Read(config.DirectoriesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	listed, err := config.ParseDirectories(content)
	if err != nil {
		return nil, fmt.Errorf("reading %s/%s: %w", bin.Path(), config.DirectoriesFile, err)
	}
	return listed, nil
}
