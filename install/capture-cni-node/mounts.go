// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

const mountInterval = time.Second // between checks of the mounts

// untilMoved returns a task that fails once one of the directories was deleted or renamed on the node,
// because the container's mount then still shows the old directory. After the failure, the container
// restarts and mounts the new directory.
func (o *options) untilMoved(mounts ...string) task {
	return func(ctx context.Context) error {
		before := map[string]string{}
		for {
			now := host.MountRoots()
			for _, mount := range mounts {
				if isMoved(before[mount], now[mount]) {
					onNode := strings.TrimPrefix(mount, strings.TrimSuffix(o.Root, "/"))
					return fmt.Errorf("%s was deleted or renamed on the node, and the container's mount still shows the old directory: "+
						"restart the container", onNode)
				}
			}
			maps.Copy(before, now)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(mountInterval):
			}
		}
	}
}

// isMoved compares a mount's root with that of an earlier check. An empty root is unknown: the list of
// mounts may be incomplete, as before Linux 5.8 if another mount ends while it is read.
func isMoved(before, now string) bool {
	return strings.HasSuffix(now, host.DeletedRoot) || before != "" && now != "" && now != before
}

// agentMounts returns the directories of the node that the agent's container mounts.
func (o *options) agentMounts() []string {
	mounts := o.socketDirectories()
	for _, directory := range append([]string{o.NetDir, o.StateDir, o.RunDir, o.TmpfilesDir}, o.BinDirs...) {
		mounts = append(mounts, o.At(directory))
	}
	return mounts
}

// guardMounts returns directories that the guard's container mounts, and shares with the agent, the
// plugin and the runtime.
func (o *options) guardMounts() []string {
	return append(o.socketDirectories(), filepath.Dir(o.GuardSocket()),
		telemetry.HistoryDirectory(o.AgentSocket()), o.GuardDirectory(), podnet.LockDirectory)
}

func (o *options) socketDirectories() (directories []string) {
	for _, socket := range o.sockets {
		directories = append(directories, filepath.Dir(socket))
	}
	return directories
}
