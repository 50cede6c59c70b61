// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/capture-cni/capture-cni/install/host"
)

// pollInterval is how often the agent checks directories if the kernel has no inotify
// watches left.
const pollInterval = time.Second

// watch watches directories and their subdirectories from now on. Until its context
// ends, serve sends the path of a directory in which a file was created, written,
// renamed or removed. If the kernel refuses watches, watch calls polling, and serve sends
// every path at each interval.
func watch(directories []string, polling func(), log *slog.Logger) (changes <-chan string, serve func(context.Context)) {
	sent := make(chan string, 1)
	watcher, err := fsnotify.NewWatcher()
	for i := 0; err == nil && i < len(directories); i++ {
		err = watcher.Add(directories[i])
		addSubdirectories(watcher, directories[i])
	}
	if err == nil {
		return sent, func(ctx context.Context) { forward(ctx, watcher, directories, sent, log) }
	}
	log.Warn("watching directories failed; polling: raise fs.inotify.max_user_instances and max_user_watches", "error", err)
	polling()
	if watcher != nil {
		_ = watcher.Close()
	}
	return sent, func(ctx context.Context) { poll(ctx, directories, sent) }
}

func forward(ctx context.Context, watcher *fsnotify.Watcher, directories []string, changes chan<- string, log *slog.Logger) {
	defer watcher.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-watcher.Events:
			if event.Op&^fsnotify.Chmod == 0 || host.IsTemp(filepath.Base(event.Name)) {
				continue
			}
			if event.Has(fsnotify.Create) {
				addSubdirectories(watcher, filepath.Dir(event.Name))
			}
			send(ctx, changes, filepath.Dir(event.Name))
		case err := <-watcher.Errors:
			// Events were lost.
			log.Warn("watching the node's directories", "error", err)
			for _, directory := range directories {
				send(ctx, changes, directory)
			}
		}
	}
}

// addSubdirectories watches a directory's subdirectories, which contain drop-ins. If that
// fails, the next resync finds what was missed.
func addSubdirectories(watcher *fsnotify.Watcher, directory string) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			_ = watcher.Add(filepath.Join(directory, entry.Name()))
		}
	}
}

func poll(ctx context.Context, directories []string, changes chan<- string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollInterval):
			for _, directory := range directories {
				send(ctx, changes, directory)
			}
		}
	}
}

func send(ctx context.Context, changes chan<- string, directory string) {
	select {
	case changes <- directory:
	case <-ctx.Done():
	}
}
