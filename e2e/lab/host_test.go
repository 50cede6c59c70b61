// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestSweep expects sweep to remove the namespace of a process that has ended, and no other namespace.
func TestSweep(t *testing.T) {
	kept := StartHost(t)
	left, err := NewHost()
	Check(t, err)
	defer left.NetNS.Close()
	const beyond = 1<<22 + 1 // larger than any pid
	file := fmt.Sprintf("%s/%d %s", owners, beyond, filepath.Base(left.Path()))
	Check(t, os.Rename(left.owner(), file))
	sweep()
	for _, path := range []string{left.Path(), file} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	for _, path := range []string{kept.Path(), kept.owner()} {
		_, err := os.Stat(path)
		Check(t, err)
	}
}
