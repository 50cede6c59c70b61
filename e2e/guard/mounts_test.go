// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// container is the guard's container: what it has mounted of the node's directories.
type container struct {
	node   string // directory of the node's own ones
	mounts map[string]string
	flags  []string
}

// start starts the container as a runtime does, which makes missing directories.
func (c container) start(t *testing.T) *builtGuard {
	t.Helper()
	script := "set -e\n"
	for source, target := range c.mounts {
		lab.Check(t, errors.Join(os.MkdirAll(c.node+"/"+source, 0o755), os.MkdirAll(target, 0o755)))
		script += "mount --bind " + c.node + "/" + source + " " + target + "\n"
	}
	return startBy(t, []string{"unshare", "--mount", "sh", "-c", script + `exec "$@"`, "sh"}, nil, c.flags...)
}

// TestDeletedGuardMounts deletes a directory that the guard's container has mounted, as
// an operator who clears /run: the guard ends, because the mount shows the deleted
// directory from then on. The kubelet starts it again, with the directory that took its
// place, and it repairs what was changed meanwhile.
func TestDeletedGuardMounts(t *testing.T) {
	t.Parallel()
	for _, deleted := range []string{"sockets", "adds", "guard", "lock", "cri"} {
		t.Run(deleted, func(t *testing.T) {
			t.Parallel()
			n := newNode()
			p := n.run(t, "web")
			p.capture(t, nil)
			inside, onNode := t.TempDir(), t.TempDir()
			stub := newCRIStub(p)
			lab.Check(t, os.Mkdir(onNode+"/cri", 0o755))
			c := container{node: onNode, mounts: map[string]string{
				config.SocketsName: inside + "/" + config.SocketsName, "adds": inside + "/adds", "guard": inside + "/guard",
				"lock": podnet.LockDirectory, "cri": inside + "/cri",
			}, flags: []string{"--run-dir", inside, "--round", "1s", "--cri-socket", inside + "/cri/" + filepath.Base(serveCRI(t, onNode+"/cri", stub))}}
			n.serveIn(t, onNode)

			first := c.start(t)
			first.waitForCaptured(t, 1)
			if deleted == "sockets" {
				lab.Check(t, os.Rename(onNode+"/"+deleted, onNode+"/renamed"))
			} else {
				lab.Check(t, os.RemoveAll(onNode+"/"+deleted))
			}
			if _, failed := errors.AsType[*exec.ExitError](first.Wait()); !failed || !strings.Contains(first.log.String(), "was deleted or renamed on the node") {
				t.Errorf("the guard ended with %v", first.ProcessState)
			}

			p.nft(t, "delete", "table", "inet", "capture-cni")
			switch deleted {
			case config.SocketsName:
				n.serveIn(t, onNode)
			case "cri":
				lab.Check(t, os.Mkdir(onNode+"/cri", 0o755))
				serveCRI(t, onNode+"/cri", stub)
			}
			c.start(t).waitForCaptured(t, 1)
			if p.rules(t) == (netfilter.State{}) {
				t.Error("it reports a pod as captured that has no rules")
			}
			for _, made := range []string{"lock/netns", "guard/" + p.sandbox.ID} {
				if _, err := os.Stat(onNode + "/" + made); err != nil {
					t.Errorf("it uses another directory than the node's: %v", err)
				}
			}
		})
	}
}
