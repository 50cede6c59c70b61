// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

const mountInterval = time.Second // between checks of the mounts

// untilDeleted returns a task that fails once a directory was deleted on the node while
// this container has it mounted. The mount shows the deleted directory from then on: a
// restart of the container mounts what takes its place.
func untilDeleted(directories ...string) task {
	return func(ctx context.Context) error {
		for {
			for _, directory := range directories {
				if host.IsDeleted(directory) {
					return fmt.Errorf("%s was deleted on the node, and the container's mount still shows the deleted directory: restart the container", directory)
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(mountInterval):
			}
		}
	}
}

// guardMounts returns the directories that the guard shares with the agent, the plugin
// and the runtime.
func (o *options) guardMounts() ([]string, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	directories, err := o.socketDirectories()
	return append(directories, filepath.Dir(s.GuardSocket()), history.Directory(s.AgentSocket()), s.GuardDirectory(), podnet.LockDirectory), err
}

// socketDirectories returns the directories of the CRI sockets.
func (o *options) socketDirectories() (directories []string, err error) {
	sockets, err := o.sockets()
	for _, socket := range sockets {
		directories = append(directories, filepath.Dir(socket))
	}
	return directories, err
}
