// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestTrust makes a trusted file, then spoils its path in one way at a time.
func TestTrust(t *testing.T) {
	lab.RequireRoot(t)
	for _, test := range []struct {
		name  string
		spoil func(dir, file string) (path string, err error)
		want  string
	}{
		{"as it is", func(_, file string) (string, error) { return file, nil }, ""},
		{"another owner", func(_, file string) (string, error) { return file, os.Chown(file, 1000, 0) }, "belongs to uid 1000"},
		{"group may write", func(_, file string) (string, error) { return file, os.Chmod(file, 0o620) }, "can be written by others"},
		{"all may write", func(_, file string) (string, error) { return file, os.Chmod(file, 0o602) }, "can be written by others"},
		{"others may read", func(_, file string) (string, error) { return file, os.Chmod(file, 0o644) }, ""},
		{"folder of another", func(dir, file string) (string, error) { return file, os.Chown(dir, 1000, 0) }, "belongs to uid 1000"},
		{"open folder", func(dir, file string) (string, error) { return file, os.Chmod(dir, 0o777) }, "can be written by others"},
		{"sticky folder of root's", func(dir, file string) (string, error) { return file, os.Chmod(dir, 0o777|fs.ModeSticky) }, ""},
		{"link", func(dir, file string) (string, error) {
			return dir + "/link", os.Symlink(file, dir+"/link")
		}, ""},
		{"relative link through a folder", func(dir, _ string) (string, error) {
			return dir + "/link/file", os.Symlink("../"+filepath.Base(dir), dir+"/link")
		}, ""},
		{"link to another's", func(dir, file string) (string, error) {
			return dir + "/link", errors.Join(os.Symlink(file, dir+"/link"), os.Chown(file, 1000, 0))
		}, "belongs to uid 1000"},
		{"circle of links", func(dir, _ string) (string, error) {
			return dir + "/a", errors.Join(os.Symlink("b", dir+"/a"), os.Symlink("a", dir+"/b"))
		}, "more than 40 symbolic links"},
		{"the kubelet's pod folder", func(dir, file string) (string, error) {
			pods := dir + "/kubelet/pods"
			return pods + "/file", errors.Join(os.MkdirAll(pods, 0o755), os.Link(file, pods+"/file"))
		}, "pods choose the content"},
		{"a link into the kubelet's pod folder", func(dir, file string) (string, error) {
			pods := dir + "/kubelet/pods"
			return dir + "/link/file", errors.Join(os.MkdirAll(pods, 0o755), os.Link(file, pods+"/file"), os.Symlink(pods, dir+"/link"))
		}, "pods choose the content"},
		{"a pipe", func(dir, _ string) (string, error) {
			return dir + "/pipe", syscall.Mkfifo(dir+"/pipe", 0o600)
		}, "expected a regular file"},
		{"a device", func(_, _ string) (string, error) { return "/dev/null", nil }, "can be written by others"},
		{"a device of root's", func(dir, _ string) (string, error) {
			return dir + "/device", syscall.Mknod(dir+"/device", syscall.S_IFCHR|0o600, 1<<8|3)
		}, "expected a regular file"},
		{"a folder", func(dir, _ string) (string, error) { return dir, nil }, "expected a regular file"},
		{"endless", func(_, file string) (string, error) { return file, os.Truncate(file, 1<<30) }, "at most 1048576 bytes"},
		{"relative", func(_, _ string) (string, error) { return "file", nil }, "expected an absolute path"},
		{"through ..", func(dir, _ string) (string, error) { return dir + "/../" + filepath.Base(dir) + "/file", nil }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "file")
			if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
				t.Fatal(err)
			}
			path, err := test.spoil(dir, file)
			if err != nil {
				t.Fatal(err)
			}
			data, err := readTrusted(path)
			switch {
			case test.want == "" && (err != nil || string(data) != "content"):
				t.Errorf("got %q, %v", data, err)
			case test.want != "" && (!isA[untrusted](err) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}
