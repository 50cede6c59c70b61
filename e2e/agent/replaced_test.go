// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// soon is the longest time that an agent takes which notices a change, and less than
// one that waits for its next resync.
const soon = 15 * time.Second

// expectEntrySoon waits until a runtime would call our plugin.
func (n *node) expectEntrySoon(t *testing.T, a *agent) {
	t.Helper()
	begin := time.Now()
	lab.Eventually(t, func() error {
		got, err := n.loadedTypes()
		if err == nil && !strings.Contains(got, "capture-cni") {
			err = &unexpected{"capture-cni", got}
		}
		return err
	})
	if took := time.Since(begin); took > soon {
		t.Errorf("the entry was restored after %s: %s", took, a.log)
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
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	for range 2 {
		n.removeAll(t, n.netDir)
		lab.Check(t, os.Mkdir(n.netDir, 0o755))
		n.write(t, primaryName, kindnet)
		n.expectEntrySoon(t, a)
		n.write(t, primaryName, kindnet) // the new directory is watched
		n.expectEntrySoon(t, a)
	}
	n.removeAll(t, n.binDir)
	lab.Check(t, os.Mkdir(n.binDir, 0o755))
	begin := time.Now()
	lab.Eventually(t, func() error {
		_, err := os.Stat(n.binDir + "/capture-cni")
		return err
	})
	if took := time.Since(begin); took > soon {
		t.Errorf("the plugin was restored after %s", took)
	}
	a.ready(t)
}

// TestDeletedMount deletes a directory that the agent's container has mounted: the
// mount shows the deleted one from then on, and the agent ends. The kubelet starts it
// again, with the directory that took its place.
func TestDeletedMount(t *testing.T) {
	for name, mounted := range map[string]func(n *node) (directory *string, flags []string){
		"lists": func(n *node) (*string, []string) { return &n.netDir, nil },
		"run":   func(n *node) (*string, []string) { return &n.runDir, nil },
		"state": func(n *node) (*string, []string) { return &n.stateDir, nil },
		"CRI": func(n *node) (*string, []string) {
			cri := n.dir + "/cri"
			return &cri, []string{"--cri-socket", n.dir + "/mounted/cri.sock"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			directory, flags := mounted(n)
			onNode := *directory
			lab.Check(t, os.MkdirAll(onNode, 0o755))
			lab.Check(t, os.Mkdir(n.dir+"/mounted", 0o755))
			command := []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, onNode, n.dir + "/mounted"}
			*directory = n.dir + "/mounted"
			flags = append(flags, "--mode", "insert")
			a := n.startBehind(t, command, flags...)
			a.waitForLog(t, "placed the entry")
			lab.Eventually(t, func() error { return os.RemoveAll(onNode) }) // the agent may write to it
			lab.Check(t, os.Mkdir(onNode, 0o755))
			expectEnd(t, a)
			if onNode == n.dir+"/net.d" {
				lab.Check(t, os.WriteFile(onNode+"/"+primaryName, []byte(kindnet), 0o644))
			}
			again := n.startBehind(t, command, flags...)
			*directory = onNode
			n.expectEntrySoon(t, again)
			lab.Eventually(t, func() error { return expectMetric(again, `capture_cni_node_good{part="entry"} 1`) })
		})
	}
}

// expectEnd expects the agent to end soon, with an error that says why.
func expectEnd(t *testing.T, a *agent) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- a.Wait() }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(a.log.String(), "was deleted on the node") {
			t.Errorf("the agent ended with %v: %s", err, a.log)
		}
	case <-time.After(soon):
		t.Fatalf("the agent goes on: %s", a.log)
	}
}
