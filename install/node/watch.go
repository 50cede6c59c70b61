// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capture-cni/capture-cni/install/host"
)

// pollInterval is the interval at which the agent reports all directories as changed, if the kernel
// refuses inotify watches. Otherwise it is the interval at which the agent checks whether a watched
// directory was created or replaced.
const pollInterval = time.Second

// watch begins to watch directories and their subdirectories, including those that are created or
// replaced later. Until its context ends, serve sends the path of a directory that was created or
// replaced, or in which a file, other than the agent's temporary ones, was created, written, renamed or
// removed. If the kernel refuses watches, watch calls polling, and serve sends every path at each
// interval.
func watch(directories []string, polling func(), log *slog.Logger) (changes <-chan string, serve func(context.Context)) {
	w := &watcher{directories: directories, watched: map[string]os.FileInfo{}, changes: make(chan string, 1), log: log}
	var err error
	if w.Watcher, err = fsnotify.NewWatcher(); err == nil {
		_, err = w.renew()
	}
	if err == nil {
		return w.changes, w.forward
	}
	log.Warn("watching directories failed; polling: raise fs.inotify.max_user_instances and max_user_watches", "error", err)
	polling()
	if w.Watcher != nil {
		_ = w.Close()
	}
	return w.changes, w.poll
}

// watcher watches directories by inotify. inotify watches inodes, so it does not notice a new directory
// at the same path.
type watcher struct {
	*fsnotify.Watcher
	directories []string
	watched     map[string]os.FileInfo // the directory at a path when its watch began
	changes     chan string
	log         *slog.Logger
}

// renew watches the directories that were created or replaced since the last call, and returns them. A
// missing directory is no error.
func (w *watcher) renew() (renewed []string, err error) {
	list := w.WatchList()
	for _, directory := range w.directories {
		info, statErr := os.Stat(directory)
		if statErr == nil && slices.Contains(list, directory) && os.SameFile(info, w.watched[directory]) {
			continue
		}
		_ = w.Remove(directory) // frees the watch of the previous directory
		if statErr == nil {
			statErr = w.Add(directory)
		}
		switch {
		case errors.Is(statErr, fs.ErrNotExist):
		case statErr != nil:
			err = errors.Join(err, statErr)
		default:
			w.watched[directory] = info
			w.addSubdirectories(directory)
			renewed = append(renewed, directory)
		}
	}
	return renewed, err
}

// forward sends changes until ctx ends.
func (w *watcher) forward(ctx context.Context) {
	defer w.Close()
	check := time.NewTicker(pollInterval)
	defer check.Stop()
	refused := false
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-w.Events:
			if event.Op&^fsnotify.Chmod == 0 || host.IsTemp(filepath.Base(event.Name)) {
				continue
			}
			if event.Has(fsnotify.Create) {
				w.addSubdirectories(filepath.Dir(event.Name))
			}
			w.send(ctx, filepath.Dir(event.Name))
		case err := <-w.Errors: // ErrEventOverflow means that events were lost
			w.log.Warn("a watch failed; checking all watched directories", "error", err)
			for _, directory := range w.directories {
				w.addSubdirectories(directory)
				w.send(ctx, directory)
			}
		case <-check.C:
			renewed, err := w.renew()
			if err != nil && !refused { // log only the first of several refusals in a row
				w.log.Warn("watching the node's directories failed; retrying", "error", err)
			}
			refused = err != nil
			for _, directory := range renewed {
				w.log.Info("watching a directory that was created or replaced", "directory", directory)
				w.send(ctx, directory)
			}
		}
	}
}

// addSubdirectories watches a directory's subdirectories, which may contain drop-ins. If it fails, the
// next resync notices the changes.
func (w *watcher) addSubdirectories(directory string) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			_ = w.Add(filepath.Join(directory, entry.Name()))
		}
	}
}

func (w *watcher) poll(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, directory := range w.directories {
			w.send(ctx, directory)
		}
	}, pollInterval)
}

func (w *watcher) send(ctx context.Context, directory string) {
	select {
	case w.changes <- directory:
	case <-ctx.Done():
	}
}
