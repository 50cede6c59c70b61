// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// soon is the longest time that an agent takes which notices a change, and less than
// one that waits for its next resync.
const soon = 15 * time.Second

// expectEntrySoon waits until a runtime would call our plugin.
func (n *node) expectEntrySoon(t *testing.T, a *machine.Agent) {
	t.Helper()
	begin := time.Now()
	lab.Eventually(t, n.hasEntry)
	if took := time.Since(begin); took > soon {
		t.Errorf("the entry was restored after %s: %s", took, a.Log)
	}
}

// removeAll deletes a directory to which the agent may write meanwhile.
func (n *node) removeAll(t *testing.T, directory string) {
	t.Helper()
	lab.Eventually(t, func() error { return os.RemoveAll(directory) })
}

// TestReplacedDirectories deletes the runtime's directories and makes them anew: the
// agent goes on watching, and repairs what comes later.
func TestReplacedDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.StartReady(t, "--mode", "insert")
	for range 2 {
		n.removeAll(t, n.NetDir)
		lab.Check(t, os.Mkdir(n.NetDir, 0o755))
		n.Write(t, machine.PrimaryName, machine.Kindnet)
		n.expectEntrySoon(t, a)
		n.Write(t, machine.PrimaryName, machine.Kindnet) // the new directory is watched
		n.expectEntrySoon(t, a)
	}
	n.removeAll(t, n.BinDir)
	lab.Check(t, os.Mkdir(n.BinDir, 0o755))
	begin := time.Now()
	lab.Eventually(t, func() error { return exists(n.BinDir + "/capture-cni") })
	if took := time.Since(begin); took > soon {
		t.Errorf("the plugin was restored after %s", took)
	}
	a.Ready(t)
}

// TestDeletedMount deletes or renames a directory that the agent's container has mounted: the
// mount shows the old one from then on, and the agent ends. The kubelet starts it
// again, with the directory that took its place.
func TestDeletedMount(t *testing.T) {
	t.Parallel()
	for name, mounted := range map[string]func(n *node) (directory *string, flags []string){
		"lists":         func(n *node) (*string, []string) { return &n.NetDir, nil },
		"renamed lists": func(n *node) (*string, []string) { return &n.NetDir, nil },
		"run":           func(n *node) (*string, []string) { return &n.RunDir, nil },
		"state":         func(n *node) (*string, []string) { return &n.StateDir, nil },
		"programs":      func(n *node) (*string, []string) { return &n.BinDir, nil },
		"boot": func(n *node) (*string, []string) {
			boot := n.Dir + "/boot"
			return &boot, []string{"--tmpfiles-dir", n.Dir + "/mounted"}
		},
		"CRI": func(n *node) (*string, []string) {
			cri := n.Dir + "/cri"
			return &cri, []string{"--cri-socket", n.Dir + "/mounted/cri.sock"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			directory, flags := mounted(n)
			onNode := *directory
			lab.Check(t, os.MkdirAll(onNode, 0o755))
			lab.Check(t, os.Mkdir(n.Dir+"/mounted", 0o755))
			command := []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, onNode, n.Dir + "/mounted"}
			*directory = n.Dir + "/mounted"
			flags = append(flags, "--mode", "insert")
			a := n.StartBehind(t, command, flags...)
			a.WaitForLog(t, "placed the entry")
			lab.Eventually(t, func() error { // the agent may write to it
				if strings.HasPrefix(name, "renamed") {
					return os.Rename(onNode, onNode+".before")
				}
				return os.RemoveAll(onNode)
			})
			lab.Check(t, os.Mkdir(onNode, 0o755))
			expectEnd(t, a)
			if onNode == n.Dir+"/net.d" {
				lab.Check(t, os.WriteFile(onNode+"/"+machine.PrimaryName, []byte(machine.Kindnet), 0o644))
			}
			again := n.StartBehind(t, command, flags...)
			*directory = onNode
			n.expectEntrySoon(t, again)
			again.WaitForMetric(t, `capture_cni_node_good{part="entry"} 1`)
		})
	}
}

// TestDeletedBeforeStart mounts a directory that is deleted before the agent's program starts.
func TestDeletedBeforeStart(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	onNode := n.NetDir
	n.NetDir = n.Dir + "/mounted"
	lab.Check(t, os.Mkdir(n.NetDir, 0o755))
	command := []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" "$1" && shift && rm -r "$0" && mkdir "$0" && exec "$@"`, onNode, n.NetDir}
	expectEnd(t, n.StartBehind(t, command, "--mode", "insert"))
}

// expectEnd expects the agent to end soon, with an error that says why.
func expectEnd(t *testing.T, a *machine.Agent) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- a.Wait() }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(a.Log.String(), "was deleted or renamed on the node") {
			t.Errorf("the agent ended with %v: %s", err, a.Log)
		}
	case <-time.After(soon):
		t.Fatalf("the agent goes on: %s", a.Log)
	}
}
