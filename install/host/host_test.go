// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// A test that has to die, or to be watched, runs itself again with these.
const (
	envFolder = "HOST_TEST_FOLDER"
	envStep   = "HOST_TEST_STEP"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(envFolder); folder != "" {
		os.Exit(replaceAndDie(folder, os.Getenv(envStep)))
	}
	os.Exit(m.Run())
}

// replaceAndDie replaces a file and kills its process before the given step.
func replaceAndDie(folder, step string) int {
	d, err := OpenDir(folder)
	if err != nil {
		return 1
	}
	last, _ := strconv.Atoi(step)
	count := 0
	d.Step = func(string) {
		if count++; count == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if err := d.Replace("conf", newContent, As(0o600), nil); err != nil {
		return 1
	}
	return 0
}

var (
	oldContent = []byte("old")
	newContent = bytes.Repeat([]byte("new"), 100_000)
)

func again(folder, step string) *exec.Cmd {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), envFolder+"="+folder, envStep+"="+step)
	return command
}

func open(t *testing.T, folder string) *Dir {
	t.Helper()
	d, err := OpenDir(folder)
	check(t, err)
	t.Cleanup(func() { check(t, d.Close()) })
	return d
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestKilledAnywhere kills the writer before each of its steps: the file is the
// old one or the new one, and what was not finished can be told and cleared.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	var seen []string
	for step := 1; ; step++ {
		folder := t.TempDir()
		d := open(t, folder)
		check(t, d.Replace("conf", oldContent, As(0o600), nil))
		err := again(folder, strconv.Itoa(step)).Run()
		content, readErr := d.Read("conf")
		check(t, readErr)
		switch {
		case bytes.Equal(content, oldContent):
			seen = append(seen, "old")
		case bytes.Equal(content, newContent):
			seen = append(seen, "new")
		default:
			t.Fatalf("killed before step %d, %d bytes are there", step, len(content))
		}
		check(t, d.ClearTemps())
		if names, err := d.Names(); err != nil || !slices.Equal(names, []string{"conf"}) {
			t.Errorf("killed before step %d: %q, %v", step, names, err)
		}
		if err == nil {
			break // it ran to its end
		}
	}
	if want := []string{"old", "old", "old", "new", "new"}; !slices.Equal(seen, want) {
		t.Errorf("got %q, want %q", seen, want)
	}
}

// TestOrder looks at the system calls: nothing is renamed that is not on disk,
// and nothing is said to be done before the folder is.
func TestOrder(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs strace")
		}
		t.Skip("this test needs strace")
	}
	folder := t.TempDir()
	trace := filepath.Join(t.TempDir(), "trace")
	child := again(folder, "0")
	command := exec.Command(strace, "-f", "-qq", "-y", "-e", "trace=write,fsync,renameat,renameat2", "-o", trace, child.Path)
	command.Env = child.Env
	check(t, command.Run())
	content, err := os.ReadFile(trace)
	check(t, err)
	var calls []string
	for _, match := range regexp.MustCompile(`(write|fsync|rename)(?:at2?)?\(\d+<`+regexp.QuoteMeta(folder)).FindAllStringSubmatch(string(content), -1) {
		calls = append(calls, match[1])
	}
	if got := slices.Compact(calls); !slices.Equal(got, []string{"write", "fsync", "rename", "fsync"}) {
		t.Errorf("got %q in\n%s", got, content)
	}
}

// TestFailures leave the old file, and nothing else.
func TestFailures(t *testing.T) {
	lab.RequireRoot(t)
	mount := func(options string) func(t *testing.T, folder string) {
		return func(t *testing.T, folder string) {
			t.Helper()
			check(t, unix.Mount("none", folder, "tmpfs", 0, options))
			t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
		}
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, folder string)
		after   func(t *testing.T, folder string)
		want    error
	}{
		"no space": {mount("size=64k"), func(*testing.T, string) {}, syscall.ENOSPC},
		"read-only": {mount("size=1m"), func(t *testing.T, folder string) {
			t.Helper()
			check(t, unix.Mount("none", folder, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}, syscall.EROFS},
		"a folder is in the way": {mount("size=1m"), func(t *testing.T, folder string) {
			t.Helper()
			check(t, os.Remove(folder+"/conf"))
			check(t, os.Mkdir(folder+"/conf", 0o700))
		}, syscall.EEXIST},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			test.prepare(t, folder)
			d := open(t, folder)
			check(t, d.Replace("conf", oldContent, As(0o600), nil))
			test.after(t, folder)
			before, err := d.Names()
			check(t, err)
			if err := d.Replace("conf", newContent, As(0o600), nil); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if after, err := d.Names(); err != nil || !slices.Equal(after, before) {
				t.Errorf("left %q, %v", after, err)
			}
		})
	}
}

// TestTry keeps the old file where the new one does not prove good.
func TestTry(t *testing.T) {
	t.Parallel()
	d := open(t, t.TempDir())
	check(t, d.Replace("conf", oldContent, As(0o600), nil))
	bad := errors.New("does not run")
	err := d.Replace("conf", newContent, As(0o755), func(path string) error {
		if content, err := os.ReadFile(path); err != nil || !bytes.Equal(content, newContent) {
			t.Errorf("what is tried is not all there: %v", err)
		}
		return bad
	})
	content, readErr := d.Read("conf")
	names, namesErr := d.Names()
	if !errors.Is(err, bad) || string(content) != "old" || len(names) != 1 || readErr != nil || namesErr != nil {
		t.Errorf("got %v, %q, %q", err, content, names)
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	d := open(t, folder)
	perm := func() os.FileMode {
		info, err := os.Stat(folder + "/f")
		check(t, err)
		return info.Mode().Perm()
	}
	for _, test := range []struct {
		mode Mode
		want os.FileMode
	}{{Kept(0o644), 0o644}, {As(0o600), 0o600}, {Kept(0o644), 0o600}, {As(0o755), 0o755}} {
		check(t, d.Replace("f", oldContent, test.mode, nil))
		if got := perm(); got != test.want {
			t.Errorf("%+v: got %o, want %o", test.mode, got, test.want)
		}
	}
}

// TestNeverOutside follows no link, and no name, out of the folder.
func TestNeverOutside(t *testing.T) {
	t.Parallel()
	outside, folder := t.TempDir(), t.TempDir()
	check(t, os.WriteFile(outside+"/secret", oldContent, 0o600))
	check(t, os.Symlink(outside, folder+"/link"))
	check(t, os.Symlink(outside+"/secret", folder+"/file"))
	d := open(t, folder)
	for _, name := range []string{"../" + filepath.Base(outside) + "/secret", "link/secret", "file"} {
		if content, err := d.Read(name); err == nil {
			t.Errorf("%s: read %q", name, content)
		}
	}
	check(t, d.Replace("file", newContent, As(0o600), nil)) // the link goes, not its target
	if _, err := d.Sub("link", true); err == nil {
		t.Error("a link was taken for a folder within")
	}
	if content, err := os.ReadFile(outside + "/secret"); err != nil || string(content) != "old" {
		t.Errorf("the file outside is %q, %v", content, err)
	}
}

// TestLock runs alone: a process that is started beside it holds its files, and
// with them the lock, for a moment.
func TestLock(t *testing.T) {
	folder := t.TempDir()
	first, err := open(t, folder).TryLock()
	check(t, err)
	if _, err := open(t, folder).TryLock(); !errors.Is(err, ErrLocked) {
		t.Errorf("got %v", err)
	}
	check(t, first.Close())
	second, err := open(t, folder).TryLock()
	check(t, err)
	check(t, second.Close())
}
