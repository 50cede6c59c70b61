// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
)

// Runtime is which container runtime a node runs.
type Runtime string

const (
	// Containerd2 is built from source with the other parts.
	Containerd2 Runtime = "containerd 2"
	// Debian1 is Debian's own package of containerd.
	Debian1 Runtime = "containerd 1.6"
	// CRIO is built from source with the other parts; its conmon is Debian's.
	CRIO Runtime = "cri-o 1"
)

// Runtimes are all of them.
var Runtimes = []Runtime{Containerd2, Debian1, CRIO}

// daemon returns the name of the runtime's program.
func (r Runtime) daemon() string {
	if r == CRIO {
		return "crio"
	}
	return "containerd"
}

// socket returns the path of the CRI socket on the node.
func (n *Node) socket() string {
	if n.Runtime == CRIO {
		return "/run/crio/crio.sock"
	}
	return "/run/containerd/containerd.sock"
}

// Socket returns the host's path of the node's CRI socket.
func (n *Node) Socket() string { return n.Path(n.socket()) }

// runtimeFiles returns the runtime's configuration, by path in the node's directory.
func (n *Node) runtimeFiles() map[string]string {
	if n.Runtime == CRIO {
		return n.crioFiles()
	}
	return map[string]string{containerdFile: containerdConf}
}

// StartRuntime starts the runtime with the image of sandboxes, and waits until it answers.
func (n *Node) StartRuntime(ctx context.Context) error {
	if n.Runtime == CRIO {
		return n.startCRIO(ctx)
	}
	return n.startContainerd(ctx)
}

// importImage imports an image into the runtime.
func (n *Node) importImage(ctx context.Context, image imageFile) error {
	importers := []*exec.Cmd{n.ctr(ctx, "--namespace", "k8s.io", "images", "import", image.path)}
	if n.Runtime == CRIO {
		importers = nil
		for _, name := range image.names {
			importers = append(importers, n.copyimg(ctx, "--image-name="+name, "--import-from="+image.format+":"+image.path))
		}
	}
	for _, importer := range importers {
		if out, err := importer.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// StopRuntime stops the runtime; pods keep running.
func (n *Node) StopRuntime() error { return n.stopDaemon(n.Runtime.daemon(), syscall.SIGTERM) }

// KillRuntime kills the runtime; pods keep running.
func (n *Node) KillRuntime() error { return n.stopDaemon(n.Runtime.daemon(), syscall.SIGKILL) }

// PauseRuntime makes the runtime hang: the kernel accepts its connections.
func (n *Node) PauseRuntime() error { return n.pauseDaemon(n.Runtime.daemon()) }

// ResumeRuntime ends the hang.
func (n *Node) ResumeRuntime() error { return n.resumeDaemon(n.Runtime.daemon()) }
