// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// allowed holds the directories of the running tests.
var allowed struct {
	sync.Mutex
	directories map[string]bool
}

// allow adds a directory to the list next to the built plugin until the test ends, as
// the agent does for directories other than the defaults.
func allow(t testing.TB, directory string) {
	t.Helper()
	list(t, directory, true)
	t.Cleanup(func() { list(t, directory, false) })
}

func list(t testing.TB, directory string, isAllowed bool) {
	t.Helper()
	allowed.Lock()
	defer allowed.Unlock()
	if allowed.directories == nil {
		allowed.directories = map[string]bool{}
	}
	if isAllowed {
		allowed.directories[directory] = true
	} else {
		delete(allowed.directories, directory)
	}
	path := filepath.Join(bin, config.DirectoriesFile)
	content := config.FormatDirectories(slices.Sorted(maps.Keys(allowed.directories)))
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
