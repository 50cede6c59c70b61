// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestReadTrusted breaks one condition of a trusted file at a time.
func TestReadTrusted(t *testing.T) {
	lab.RequireRoot(t)
	for _, test := range []struct {
		name  string
		spoil func(dir, file string) error
		want  string
	}{
		{"untouched", func(_, _ string) error { return nil }, ""},
		{"another owner", func(_, file string) error { return os.Chown(file, 1000, 0) }, "belongs to uid 1000"},
		{"group may write", func(_, file string) error { return os.Chmod(file, 0o620) }, "can be written by other users"},
		{"all may write", func(_, file string) error { return os.Chmod(file, 0o602) }, "can be written by other users"},
		{"others may read", func(_, file string) error { return os.Chmod(file, 0o644) }, ""},
		{"directory of another user", func(dir, _ string) error { return os.Chown(dir, 1000, 0) }, "belongs to uid 1000"},
		{"directory that all may write to", func(dir, _ string) error { return os.Chmod(dir, 0o777) }, "can be written by other users"},
		{"directory that all may write to, sticky", func(dir, _ string) error { return os.Chmod(dir, 0o777|fs.ModeSticky) }, "can be written by other users"},
		{"link within, as in a kubelet's volume", func(dir, file string) error {
			return errors.Join(os.Mkdir(dir+"/..data", 0o755), os.Rename(file, dir+"/..data/file"), os.Symlink("..data/file", file))
		}, ""},
		{"absolute link within, as the kubelet's certificate", func(dir, file string) error {
			return errors.Join(os.Rename(file, dir+"/file-2026"), os.Symlink(dir+"/file-2026", file))
		}, ""},
		{"link to a file elsewhere", func(_, file string) error {
			return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file))
		}, "escapes"},
		{"link out of the directory", func(dir, file string) error {
			return errors.Join(os.Rename(file, dir+"-outside"), os.Symlink("../"+filepath.Base(dir)+"-outside", file))
		}, "escapes"},
		{"circle of links", func(_, file string) error {
			return errors.Join(os.Remove(file), os.Symlink("file", file))
		}, "too many"},
		{"pipe", func(_, file string) error { return errors.Join(os.Remove(file), syscall.Mkfifo(file, 0o600)) }, "expected a regular file"},
		{"device", func(_, file string) error {
			return errors.Join(os.Remove(file), syscall.Mknod(file, syscall.S_IFCHR|0o600, 1<<8|3))
		}, "expected a regular file"},
		{"directory in its place", func(_, file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }, "expected a regular file"},
		{"too large", func(_, file string) error { return os.Truncate(file, maxFile+1) }, "at most 1048576 bytes"},
		{"as large as it may be", func(_, file string) error { return os.Truncate(file, maxFile) }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, dir+"/file", "content")
			if err := test.spoil(dir, dir+"/file"); err != nil {
				t.Fatal(err)
			}
			data, err := readIn(dir, "file")
			switch {
			case test.want == "" && (err != nil || !strings.HasPrefix(string(data), "content")):
				t.Errorf("got %q, %v", data, err)
			case test.want != "" && (!isA[Untrusted](err) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestReadFails returns the error of a directory, and of a file, that can't be read.
func TestReadFails(t *testing.T) {
	lab.RequireRoot(t)
	for path, want := range map[string]error{"/nonexistent/file": fs.ErrNotExist, "/proc/self/nonexistent": fs.ErrNotExist, "/proc/self/mem": syscall.EIO} {
		if data, err := readIn(filepath.Dir(path), filepath.Base(path)); data != nil || !errors.Is(err, want) || isA[Untrusted](err) {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
}

// file is a file of a user and a mode; of a user that is not known for -1.
type file struct {
	fs.FileInfo
	user int
	mode fs.FileMode
}

func (f file) Mode() fs.FileMode { return f.mode }

func (f file) Sys() any {
	if f.user < 0 {
		return nil
	}
	return &syscall.Stat_t{Uid: uint32(f.user)}
}

// TestCheckOwner has files that grant other users more or less.
func TestCheckOwner(t *testing.T) {
	own := os.Geteuid()
	for _, test := range []struct {
		file file
		mask fs.FileMode
		want string
	}{
		{file{user: own, mode: 0o600}, 0o077, "<nil>"},
		{file{user: own, mode: 0o640}, 0o022, "<nil>"},
		{file{user: own, mode: 0o640}, 0o077, "/f grants permissions to other users than root (mode -rw-r-----): expected no permission for group and others"},
		{file{user: own, mode: 0o606}, 0o077, "/f can be written by other users than root (mode -rw----rw-): expected no write permission for group and others"},
		{file{user: own + 1, mode: 0o600}, 0o077, fmt.Sprintf("/f belongs to uid %d: expected root", own+1)},
		{file{user: -1, mode: 0o600}, 0o077, "reading the owner of /f"},
	} {
		if got := fmt.Sprint(CheckOwner("/f", test.file, test.mask)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.file, got, test.want)
		}
	}
}

func readIn(dir, name string) ([]byte, error) {
	root, err := OpenDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return Read(root, name)
}

// TestCheckPaths allows the two default directories, that of the environment
// variable, and those of the list next to the executable, which is this test's.
func TestCheckPaths(t *testing.T) {
	lab.RequireRoot(t)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(filepath.Dir(executable), config.DirectoriesFile)
	t.Cleanup(func() { _ = os.Remove(list) })
	t.Setenv(config.DirectoryVariable, "/by/hand")
	for _, test := range []struct {
		name, directory, list string
		mode                  fs.FileMode
		want                  string
	}{
		{"state directory", "/var/lib/capture-cni", "", 0, ""},
		{"run directory", "/run/capture-cni", "", 0, ""},
		{"environment", "/by/hand", "", 0, ""},
		{"another one", "/srv/own", "", 0, `"kubeconfig" is "/srv/own/kubeconfig": expected kubeconfig in /var/lib/capture-cni or /run/capture-cni`},
		{"below an allowed one", "/run/capture-cni/x", "", 0, `"agentSocket" is "/run/capture-cni/x/agent.sock": expected agent.sock in`},
		{"a container's root", "/run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs", "", 0, "expected kubeconfig in"},
		{"another name of the same directory", "/var/run/capture-cni", "", 0, "expected kubeconfig in"},
		{"listed", "/srv/own", "# k3s\n/srv/own\n", 0o644, ""},
		{"not listed", "/srv/other", "/srv/own\n", 0o644, list},
		{"listed in a list that all may write", "/srv/own", "/srv/own\n", 0o666, "can be written by other users"},
		{"malformed list", "/srv/own", "srv", 0o600, "expected an absolute path"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_ = os.Remove(list)
			if test.mode != 0 {
				writeFile(t, list, test.list)
				if err := os.Chmod(list, test.mode); err != nil {
					t.Fatal(err)
				}
			}
			conf := config.Default()
			conf.Kubeconfig = test.directory + "/kubeconfig"
			conf.AgentSocket = test.directory + "/agent.sock"
			err := CheckPaths(conf)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (!isA[Untrusted](err) || !strings.Contains(fmt.Sprint(err), test.want)):
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
