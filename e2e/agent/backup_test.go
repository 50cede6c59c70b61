// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestRestoredBackup restores the directories of the node from an old backup: an expired
// token, the kubeconfig of another API server, an entry of other keys, another plugin.
// Until an agent runs, pods outside the mesh start, meshed ones fail, and DEL succeeds.
// The agent restores all of it, also if it runs already.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.PreparePods(t)
	n.API.IssueTokens(time.Second)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(netConf, []byte(`{"logLevel": "debug"}`), 0o600))
	n.Start(t, "--mode", "insert", "--plugin", otherRelease(t), "--netconf", netConf, "--api-server", "https://127.0.0.1:1").StopOnceReady(t)
	old := n.backup(t)
	n.API.IssueTokens(0)
	lab.Eventually(t, func() error {
		if n.API.Accepts(old[n.StateDir+"/token"]) {
			return errors.New("the old token has not expired yet")
		}
		return nil
	})
	n.Start(t, "--mode", "insert").StopOnceReady(t)
	installed := n.backup(t)

	n.restore(t, old)
	if out, err := n.Call("ADD", "plain", machine.Sandbox(t).Path(), "2s"); err != nil {
		t.Errorf("a pod outside the mesh: %v: %s", err, out)
	}
	if out, err := n.Call("ADD", "web", machine.Sandbox(t).Path(), "1s"); err == nil || !strings.Contains(out, "lookupTimeout of 1s leaves no time for a retry") {
		t.Errorf("a meshed pod: %v: %s", err, out)
	}
	if out, err := n.Call("DEL", "web", machine.Sandbox(t).Path(), "2s"); err != nil {
		t.Errorf("DEL: %v: %s", err, out)
	}
	a := n.StartReady(t, "--mode", "insert")
	n.expectFiles(t, installed)

	n.restore(t, old)
	lab.Check(t, n.StartAndStop(t, "web"))
	n.expectFiles(t, installed)
	a.StopOnceReady(t)
	lab.Check(t, n.StartAndStop(t, "web"))
}

// backup returns the files of the node's directories.
func (n *node) backup(t *testing.T) map[string]string {
	t.Helper()
	held := map[string]string{}
	for _, directory := range []string{n.NetDir, n.BinDir, n.StateDir} {
		for name, content := range files(t, directory) {
			held[directory+name] = content
		}
	}
	return held
}

// restore replaces the files of a backup, as tar does: other files stay.
func (n *node) restore(t *testing.T, held map[string]string) {
	t.Helper()
	for path, content := range held {
		info, err := os.Stat(path)
		lab.Check(t, err)
		lab.Check(t, os.WriteFile(path+".restored", []byte(content), info.Mode()))
		lab.Check(t, os.Rename(path+".restored", path))
	}
}

// expectFiles waits until the node has these files again. The token is a new one, and the
// last copy of a program that ran may be the backup's, which ran, too.
func (n *node) expectFiles(t *testing.T, want map[string]string) {
	t.Helper()
	lab.Eventually(t, func() error {
		now := n.backup(t)
		for path, content := range want {
			if path == n.StateDir+"/token" || strings.HasSuffix(path, ".last-good") {
				continue
			}
			if now[path] != content {
				return fmt.Errorf("%s is not restored", path)
			}
		}
		return nil
	})
}

// otherRelease returns a plugin with another content, which works the same, next to its
// capture-cni-lookup.
func otherRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"capture-cni", "capture-cni-lookup"} {
		content, err := os.ReadFile(filepath.Join(machine.Bin, name))
		lab.Check(t, err)
		lab.Check(t, lab.WriteProgram(filepath.Join(dir, name), append(content, strconv.Itoa(len(content))...)))
	}
	return filepath.Join(dir, "capture-cni")
}
