// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// crioConf is CRI-O's configuration, with events for the guard. %[1]s is the directory
// of the parts, %[2]s the OCI runtime.
const crioConf = `[crio]
root = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
storage_driver = "overlay"
[crio.api]
listen = "/run/crio/crio.sock"
stream_address = "127.0.0.1"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
enable_pod_events = true
pinns_path = "%[1]s/pinns"
default_runtime = "runc"
[crio.runtime.runtimes.runc]
runtime_path = "%[2]s"
runtime_root = "/run/runc"
[crio.image]
pause_image = "` + AppImage + `"
pause_command = "/apps"
[crio.nri]
enable_nri = false
`

// imagePolicy allows images without a signature.
const imagePolicy = `{"default": [{"type": "insecureAcceptAnything"}]}
`

// runcOfHost runs runc without what hosts of tests may lack, for which containerd has
// settings: CAP_SYS_RESOURCE for a negative oom_score_adj, and limits of huge pages.
const runcOfHost = `#!/bin/sh
for argument; do
	[ "$last" = --bundle ] && sed -z -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/; s/"hugepageLimits": *\[[^]]*\]/"hugepageLimits":[]/' "$argument/config.json"
	last=$argument
done
exec %s "$@"
`

// crioFiles returns CRI-O's files on a node.
func (n *Node) crioFiles() map[string]string {
	return map[string]string{
		"disk/etc/crio/crio.conf":         fmt.Sprintf(crioConf, n.cluster.Parts, n.ociRuntime()),
		"disk/etc/containers/policy.json": imagePolicy,
		"runc":                            fmt.Sprintf(runcOfHost, filepath.Join(n.cluster.Parts, "runc")),
	}
}

func (n *Node) ociRuntime() string { return n.cluster.path(nodeName(n.Number), "runc") }

// startCRIO imports the sandbox image, starts CRI-O and waits for it.
func (n *Node) startCRIO(ctx context.Context) error {
	if err := errors.Join(os.Chmod(n.ociRuntime(), 0o755), n.importImage(ctx, n.cluster.appImage())); err != nil {
		return err
	}
	if err := n.startDaemon(n.cluster.Parts, "crio"); err != nil {
		return err
	}
	for deadline := time.Now().Add(Timeout); ; time.Sleep(20 * time.Millisecond) {
		err := n.Command(ctx, filepath.Join(n.cluster.Parts, "crio"), "status", "info").Run()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for CRI-O: %w, see %s", err, n.log("crio"))
		}
	}
}

// copyimg copies images into CRI-O's storage, also while CRI-O does not run.
func (n *Node) copyimg(ctx context.Context, args ...string) *exec.Cmd {
	return n.Command(ctx, filepath.Join(n.cluster.Parts, "copyimg"), append([]string{
		"--storage-driver=overlay", "--root=/var/lib/containers/storage", "--runroot=/run/containers/storage",
	}, args...)...)
}
