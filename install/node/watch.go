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

// pollInterval is how often folders are looked at where the kernel has no more
// watches to give.
const pollInterval = time.Second

// watch watches folders, and the folders within them, from now on. serve sends a
// folder's path whenever something in it was created, written, renamed or removed,
// until its context ends. Where nothing can be watched, polling is called, and serve
// sends every path at each interval.
func watch(folders []string, polling func(), log *slog.Logger) (changes <-chan string, serve func(context.Context)) {
	sent := make(chan string, 1)
	watcher, err := fsnotify.NewWatcher()
	for i := 0; err == nil && i < len(folders); i++ {
		err = watcher.Add(folders[i])
		addFolders(watcher, folders[i])
	}
	if err == nil {
		return sent, func(ctx context.Context) { forward(ctx, watcher, folders, sent, log) }
	}
	log.Warn("changes on the node can't be watched and are polled for; raise fs.inotify.max_user_instances and max_user_watches", "error", err)
	polling()
	if watcher != nil {
		_ = watcher.Close()
	}
	return sent, func(ctx context.Context) { poll(ctx, folders, sent) }
}

func forward(ctx context.Context, watcher *fsnotify.Watcher, folders []string, changes chan<- string, log *slog.Logger) {
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
				addFolders(watcher, filepath.Dir(event.Name))
			}
			send(ctx, changes, filepath.Dir(event.Name))
		case err := <-watcher.Errors:
			// Events were lost: look at everything.
			log.Warn("watching the node's folders", "error", err)
			for _, folder := range folders {
				send(ctx, changes, folder)
			}
		}
	}
}

// addFolders watches the folders within one; drop-ins are in such. Where that
// does not work, the next look at everything finds what was missed.
func addFolders(watcher *fsnotify.Watcher, folder string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			_ = watcher.Add(filepath.Join(folder, entry.Name()))
		}
	}
}

func poll(ctx context.Context, folders []string, changes chan<- string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollInterval):
			for _, folder := range folders {
				send(ctx, changes, folder)
			}
		}
	}
}

func send(ctx context.Context, changes chan<- string, folder string) {
	select {
	case changes <- folder:
	case <-ctx.Done():
	}
}
