// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

const containerdFile = "containerd.toml"

// containerdConf is for containerd 1 and 2. restrict_oom_score_adj is for hosts
// without CAP_SYS_RESOURCE, where runc can't set the kubelet's oom_score_adj.
const containerdConf = `version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.tracing.processor.v1.otlp"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + AppImage + `"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`

// startContainerd starts containerd, waits for it and imports the sandbox image.
func (n *Node) startContainerd(ctx context.Context) error {
	if err := n.startDaemon(n.containerdPath(), "containerd", "--config", filepath.Join(n.dir, containerdFile)); err != nil {
		return err
	}
	for deadline := time.Now().Add(Timeout); ; time.Sleep(20 * time.Millisecond) {
		err := n.ctr(ctx, "version").Run()
		if err == nil {
			return n.importImage(ctx, n.cluster.appImage())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for containerd: %w, see %s", err, n.log("containerd"))
		}
	}
}

func (n *Node) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return n.Command(ctx, filepath.Join(n.containerdPath(), "ctr"), args...)
}

// containerdPath returns the directory of the node's containerd and ctr.
func (n *Node) containerdPath() string {
	if n.Runtime == Debian1 {
		return "/usr/bin"
	}
	return n.cluster.Parts
}
