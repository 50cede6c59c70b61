// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyRegularFiles reads regular files alone, also by links, and waits for nothing.
func TestOnlyRegularFiles(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	files := map[string]func(name string) error{
		"regular": func(name string) error { return os.WriteFile(name, []byte("content"), 0o600) },
		"limit":   func(name string) error { return os.WriteFile(name, make([]byte, maxRead), 0o600) },
		"link":    func(name string) error { return os.Symlink("regular", name) },
		"pipe":    func(name string) error { return unix.Mkfifo(name, 0o600) },
		"to-pipe": func(name string) error { return os.Symlink("pipe", name) },
		"loop":    func(name string) error { return os.Symlink("loop", name) },
		"missing": func(string) error { return nil },
		"dir":     func(name string) error { return os.Mkdir(name, 0o700) },
		"large":   func(name string) error { return os.WriteFile(name, make([]byte, maxRead+1), 0o600) },
		"socket": func(name string) error {
			listener, err := net.Listen("unix", name)
			if err == nil {
				t.Cleanup(func() { _ = listener.Close() })
			}
			return err
		},
	}
	for name, do := range files {
		if err := do(path + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := OpenDir(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, want := range map[string]string{
		"regular": "", "limit": "", "link": "",
		"pipe": "not a regular file", "to-pipe": "not a regular file", "dir": "not a regular file", "large": "larger than 4 MiB",
		"loop": "too many levels", "socket": "no such device", "missing": "no such file",
	} {
		for reader, read := range map[string]func() ([]byte, error){
			"in a directory": func() ([]byte, error) { return dir.Read(name) },
			"by path":        func() ([]byte, error) { return ReadFile(path + "/" + name) },
		} {
			content, err := read()
			switch {
			case want == "" && (err != nil || len(content) == 0):
				t.Errorf("%s %s: %d bytes, %v", name, reader, len(content), err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) || content != nil):
				t.Errorf("%s %s: %d bytes, %v, want %q", name, reader, len(content), err, want)
			}
			if name == "missing" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %s: %v", name, reader, err)
			}
		}
		if file, err := Open(path + "/" + name); err == nil {
			_ = file.Close()
		} else if want == "" {
			t.Error(err)
		}
	}
}
