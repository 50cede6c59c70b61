// SPDX-License-Identifier: Apache-2.0

// Package agent runs the built node agent on a node that consists of directories,
// while runtimes, other plugins' installers and API servers change and fail.
package agent

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
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

// waitForCheck waits until the agent has answered the changes of the node's directories that
// were made before the call: it learns of changes in their order, and checks the whole node
// after one of the plugins' directory. The first of two checks may have begun before.
func (n *node) waitForCheck(t *testing.T, a *machine.Agent) {
	t.Helper()
	for range 2 {
		before := checkedAt(a)
		lab.Check(t, os.WriteFile(n.BinDir+"/touched", []byte("x"), 0o600))
		lab.Eventually(t, func() error {
			if now := checkedAt(a); now == before {
				return &unexpected{"a later check of the credentials", now}
			}
			return nil
		})
	}
}

// checkedAt returns when the agent checked the whole node, which includes credentials.
func checkedAt(a *machine.Agent) string {
	_, metrics := a.Get("/metrics")
	return regexp.MustCompile("\ncapture_cni_credentials_checked_.*").FindString(metrics)
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
