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

// watch tells of changes in folders, and in the folders within them, until ctx
// ends: a folder's path whenever something in it was created, written, renamed
// or removed. Where nothing can be watched it tells of a change at every
// interval, and polling is called.
func watch(ctx context.Context, folders []string, polling func(), log *slog.Logger) <-chan string {
	changes := make(chan string, 1)
	watcher, err := fsnotify.NewWatcher()
	for i := 0; err == nil && i < len(folders); i++ {
		err = watcher.Add(folders[i])
		addFolders(watcher, folders[i])
	}
	if err != nil {
		log.Warn("changes on the node can't be watched and are polled for; raise fs.inotify.max_user_instances and max_user_watches", "error", err)
		polling()
		if watcher != nil {
			_ = watcher.Close()
		}
		go poll(ctx, folders, changes)
		return changes
	}
	go func() {
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
				tell(ctx, changes, filepath.Dir(event.Name))
			case err := <-watcher.Errors:
				// Events were lost: look at everything.
				log.Warn("watching the node's folders", "error", err)
				for _, folder := range folders {
					tell(ctx, changes, folder)
				}
			}
		}
	}()
	return changes
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
				tell(ctx, changes, folder)
			}
		}
	}
}

func tell(ctx context.Context, changes chan<- string, folder string) {
	select {
	case changes <- folder:
	case <-ctx.Done():
	}
}
