// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOpenIn waits for no pipe, with a writer or without one.
func TestOpenIn(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	for _, name := range []string{"silent", "written"} {
		if err := unix.Mkfifo(directory+"/"+name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writer, err := os.OpenFile(directory+"/written", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := os.WriteFile(directory+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, opens := range map[string]bool{"silent": false, "written": false, ".": false, "file": true, "absent": false} {
		opened := make(chan error, 1)
		go func() {
			file, err := OpenIn(root, name)
			if err == nil {
				err = file.Close()
			}
			opened <- err
		}()
		select {
		case err := <-opened:
			if (err == nil) != opens || errors.Is(err, fs.ErrNotExist) != (name == "absent") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: it waits", name)
		}
	}
}
