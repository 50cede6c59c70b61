// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// container is the guard's container: what it has mounted of the node's directories.
type container struct {
	node    string // directory of the node's own ones
	mounts  map[string]string
	program string
	flags   []string
}

// start starts the container as a runtime does, which makes missing directories.
func (c container) start(t *testing.T) (command *exec.Cmd, log *lab.Log, address string) {
	t.Helper()
	address, err := lab.FreeAddress()
	lab.Check(t, err)
	script := "set -e\n"
	for source, target := range c.mounts {
		lab.Check(t, os.MkdirAll(c.node+"/"+source, 0o755))
		lab.Check(t, os.MkdirAll(target, 0o755))
		script += "mount --bind " + c.node + "/" + source + " " + target + "\n"
	}
	argv := append([]string{"--mount", "sh", "-c", script + `exec "$@"`, "sh", c.program, "guard", "--listen", address, "--round", "1s"}, c.flags...)
	command, log = exec.Command("unshare", argv...), &lab.Log{}
	command.Stderr = log
	lab.Check(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	return command, log, address
}

// TestDeletedGuardMounts deletes a directory that the guard's container has mounted, as
// an operator who clears /run: the guard ends, because the mount shows the deleted
// directory from then on. The kubelet starts it again, with the directory that took its
// place, and it repairs what was changed meanwhile.
func TestDeletedGuardMounts(t *testing.T) {
	lab.RequireRoot(t)
	program := buildAgent(t)
	for _, deleted := range []string{"sockets", "adds", "guard", "lock", "cri"} {
		t.Run(deleted, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			p.capture(t, nil)
			inside, onNode := t.TempDir(), t.TempDir()
			c := container{node: onNode, program: program, flags: []string{"--run-dir", inside, "--state-dir", "/nonexistent"}, mounts: map[string]string{
				config.SocketsName: inside + "/" + config.SocketsName, "adds": inside + "/adds", "guard": inside + "/guard",
				"lock": podnet.LockDirectory, "cri": inside + "/cri",
			}}
			stub := &criStub{netns: map[string]string{p.sandbox.ID: p.sandbox.NetNS}, items: []*runtimeapi.PodSandbox{{
				Id: p.sandbox.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: p.sandbox.Annotations,
				Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.sandbox.Namespace, Name: p.sandbox.Name, Uid: p.sandbox.UID},
			}}}
			lab.Check(t, os.Mkdir(onNode+"/cri", 0o755))
			c.flags = append(c.flags, "--cri-socket", inside+"/cri/"+filepath.Base(serveCRI(t, onNode+"/cri", stub)))
			n.serveIn(t, onNode)

			guard, log, address := c.start(t)
			waitForCaptured(t, address, 1)
			lab.Check(t, os.RemoveAll(onNode+"/"+deleted))
			expectEnd(t, guard, log)

			p.nft(t, "delete", "table", "inet", "capture-cni")
			switch deleted {
			case config.SocketsName:
				n.serveIn(t, onNode)
			case "cri":
				lab.Check(t, os.Mkdir(onNode+"/cri", 0o755))
				serveCRI(t, onNode+"/cri", stub)
			}
			_, _, address = c.start(t)
			waitForCaptured(t, address, 1)
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

// expectEnd expects the guard to end soon, with an error that says why.
func expectEnd(t *testing.T, guard *exec.Cmd, log *lab.Log) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- guard.Wait() }()
	select {
	case err := <-ended:
		if _, failed := errors.AsType[*exec.ExitError](err); !failed || !strings.Contains(log.String(), "was deleted on the node") {
			t.Errorf("the guard ended with %v: %s", err, log)
		}
	case <-time.After(15 * time.Second):
		t.Fatalf("the guard goes on: %s", log)
	}
}
