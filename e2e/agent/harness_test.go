// SPDX-License-Identifier: Apache-2.0

// Package agent runs the built node agent on a node that consists of directories,
// while runtimes, other plugins' installers and API servers change and fail.
package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

func TestMain(m *testing.M) { os.Exit(machine.Main(m)) }

// node is a node with what only these tests ask of it.
type node struct{ *machine.Node }

func newNode(t *testing.T, options ...kubeapi.Option) *node {
	t.Helper()
	return &node{machine.NewNode(t, options...)}
}

// unexpected is an error about a text.
type unexpected struct{ want, got string }

func (u *unexpected) Error() string { return "got " + u.got + ", want " + u.want }

// files returns all files below a directory with their content.
func files(t *testing.T, directory string) map[string]string {
	t.Helper()
	content := map[string]string{}
	lab.Check(t, filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || entry.Type() == os.ModeSocket {
			return err
		}
		data, err := os.ReadFile(path)
		content[strings.TrimPrefix(path, directory)] = string(data)
		return err
	}))
	return content
}
