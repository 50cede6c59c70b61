// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/host"
)

// TestTry runs programs that respond as ours and as no program of ours does.
func TestTry(t *testing.T) {
	t.Parallel()
	plugin := func(ctx context.Context, path string) error { return Executor(execute).tryPlugin(ctx, path) }
	for name, tt := range map[string]struct {
		try    func(ctx context.Context, path string) error
		script string
		want   string
	}{
		"a plugin": {plugin, `[ "$CNI_COMMAND $(cat)" = 'VERSION {"cniVersion":"1.0.0"}' ] && echo '{"supportedVersions": []}'`, "<nil>"},
		"another":  {plugin, "echo 1.0", `the plugin does not run: its response to VERSION has no supportedVersions: "1.0\n"`},
		"a plugin that fails": {
			plugin, `echo '{"code": 7, "msg": "no such version", "details": "of CNI"}'; exit 1`, "the plugin does not run: no such version; of CNI",
		},
		"a plugin without a message": {plugin, "echo '{}'; exit 3", "the plugin does not run: exit status 3"},
		"a plugin without a reason":  {plugin, "echo broken; exit 3", "the plugin does not run: exit status 3"},
		"a message of one that runs": {plugin, `echo '{"msg": "supportedVersions"}'`, "<nil>"},
		"the lookup":                 {Executor(execute).tryVersion, `[ "$*" = --version ] && echo capture-cni-lookup v1 && env | grep -q HOME && exit 4; exit 0`, "<nil>"},
		"another program":            {Executor(execute).tryVersion, "echo busybox", `capture-cni-lookup does not run: it reports "busybox\n" as its version`},
		"a program that fails":       {Executor(execute).tryVersion, "echo capture-cni-lookup v1; exit 2", "capture-cni-lookup does not run: exit status 2"},
		"another that fails":         {Executor(execute).tryVersion, "exit 2", "capture-cni-lookup does not run: exit status 2"},
	} {
		path := filepath.Join(t.TempDir(), "program")
		lab.Check(t, lab.WriteProgram(path, []byte("#!/bin/sh\n"+tt.script+"\n")))
		if err := tt.try(t.Context(), path); fmt.Sprint(err) != tt.want {
			t.Errorf("%s: got error %v, want %s", name, err, tt.want)
		}
	}
}

// TestInstall installs both programs, their copies and the list of our directories, and names
// each of these that is missing or has changed.
func TestInstallPrograms(t *testing.T) {
	t.Parallel()
	const plugin, lookup = "#!/bin/sh\necho '{\"supportedVersions\": []}'\n", "#!/bin/sh\necho capture-cni-lookup v1\n"
	root := machine.New(t, map[string]string{
		"/copy/capture-cni": plugin, "/copy/capture-cni-lookup": lookup, "/bin/other": "", "/state/owner": "mesh", "/bin/.capture-cni-tmp-left": "",
		"/bin/" + config.DirectoriesFile: string(config.FormatDirectories([]string{"/of/the/image"})),
	})
	s := DefaultSettings(root)
	s.Binary, s.Credentials.OnNode = s.At("/copy/capture-cni"), true
	s.StateDir, s.RunDir, s.Entry.Conf.AgentSocket = "/own/state/", "/own/run", "/own/run/agent.sock"
	bin, state := machine.OpenDir(t, s.At("/bin")), machine.OpenDir(t, s.At("/state"))
	faults := func() string { return strings.ReplaceAll(fmt.Sprint(programsFault(s, bin)), root, "") }
	list := "/bin/" + config.DirectoriesFile + " does not list /own/state, /own/run: the plugin would refuse files there\n"
	list += "reading in /bin: openat capture-cni-lookup: no such file or directory\nreading in /bin: openat capture-cni: no such file or directory"
	if got := faults(); got != list {
		t.Errorf("before: %s", got)
	}
	var log bytes.Buffer
	for range 2 {
		if err := installPrograms(t.Context(), s, bin, state, slog.New(slog.NewTextHandler(&log, nil))); err != nil || faults() != "<nil>" {
			t.Errorf("got error %v; %s", err, faults())
		}
	}
	if got := log.String(); strings.Count(got, "installed a program") != 2 || strings.Contains(got, "level=WARN") {
		t.Errorf("log: %s", got)
	}
	directories := string(config.FormatDirectories([]string{"/of/the/image", "/own/state", "/own/run"}))
	machine.ExpectFiles(t, bin, map[string]string{"capture-cni": plugin, "capture-cni-lookup": lookup, "other": "", config.DirectoriesFile: directories})
	machine.ExpectFiles(t, state, map[string]string{"capture-cni.last-good": plugin, "capture-cni-lookup.last-good": lookup, "owner": "mesh"})
	lab.Check(t, errors.Join(
		bin.Ensure("capture-cni", []byte("broken")), state.Remove(lastGood("capture-cni")), bin.Remove("capture-cni-lookup"),
		bin.Ensure(config.DirectoriesFile, []byte("no path\n")),
	))
	unreadable := "reading /bin/" + config.DirectoriesFile + ": "
	if got := faults(); !strings.HasPrefix(got, unreadable) || !strings.HasSuffix(got, "/bin/capture-cni differs from the agent's copy") {
		t.Errorf("after a change: %s", got)
	}
	other := s
	other.Binary = s.At("/none/capture-cni")
	err := installPrograms(t.Context(), other, bin, state, slog.New(slog.DiscardHandler))
	if got := strings.ReplaceAll(fmt.Sprint(err), root, ""); !strings.HasPrefix(got, unreadable) ||
		!strings.HasSuffix(got, "reading the agent's copy of capture-cni: open /none/capture-cni: no such file or directory") {
		t.Errorf("of copies that are missing: got error %s", got)
	}
	lab.Check(t, errors.Join(bin.Remove(config.DirectoriesFile), os.Mkdir(state.Path()+"/"+lastGood("capture-cni"), 0o700)))
	log.Reset()
	if err := installPrograms(t.Context(), s, bin, state, slog.New(slog.NewTextHandler(&log, nil))); err != nil || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("where no copy can be kept: %v, %s", err, &log)
	}
	s.Credentials.OnNode, s.StateDir, s.RunDir, s.Entry.Conf.AgentSocket = false, "/var/lib/capture-cni", "/run/capture-cni", ""
	lab.Check(t, errors.Join(bin.Ensure(config.DirectoriesFile, []byte("no path\n")), bin.Remove("capture-cni-lookup"), bin.Remove("capture-cni")))
	if err := installPrograms(t.Context(), s, bin, state, slog.New(slog.DiscardHandler)); err != nil || faults() != "<nil>" {
		t.Errorf("got error %v; %s", err, faults())
	}
	if names, err := bin.Names(); err != nil || !slices.Equal(names, []string{"capture-cni", config.DirectoriesFile, "other"}) {
		t.Errorf("without credentials and directories of its own: %q, %v", names, err)
	}
}

// TestUnreadable expects errors of what can't be read, and no program replaced.
func TestUnreadable(t *testing.T) {
	root := machine.New(t, map[string]string{"/copy/capture-cni": "new", "/bin/capture-cni": "old", "/state/capture-cni.last-good": "good"})
	s := DefaultSettings(root)
	s.StateDir = "/own"
	bin, state := machine.OpenDir(t, s.At("/bin")), machine.OpenDir(t, s.At("/state"))
	fails := func(context.Context, string) error { return errors.New("exec format error") }
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	for range 2 {
		if changed, err := (Program{"capture-cni", s.At("/copy/capture-cni"), fails}).install(t.Context(), bin, state); changed || err == nil {
			t.Errorf("of a program that does not run: changed %t, %v", changed, err)
		}
		lab.Check(t, Program{Name: "capture-cni", copy: s.At("/copy/capture-cni")}.keepLastGood(state))
	}
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open) {
		t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(open), err)
	}
	p := Program{"capture-cni", s.At("/copy/none"), fails}
	const missing = "reading the agent's copy of capture-cni: open /copy/none: no such file or directory"
	for name, call := range map[string]func() error{
		"install": func() error { _, err := p.install(t.Context(), bin, state); return err },
		"keep":    func() error { return p.keepLastGood(state) },
		"fault":   func() error { return p.fault(bin) },
	} {
		if got := strings.ReplaceAll(fmt.Sprint(call()), root, ""); got != missing {
			t.Errorf("%s: got error %s", name, got)
		}
	}
	closed, err := host.OpenDir(s.At("/bin"), nil)
	lab.Check(t, errors.Join(err, closed.Close()))
	if got := p.restore(t.Context(), bin, closed); !errors.Is(got, os.ErrClosed) {
		t.Errorf("restore: got error %v", got)
	}
	if err := installPrograms(t.Context(), s, closed, state, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "listing ") {
		t.Errorf("install: got error %v", err)
	}
	lab.Check(t, os.WriteFile(s.At("/bin/capture-cni"), nil, 0o755))
	if err := (Program{"capture-cni", "/proc/self/mem", fails}).fault(bin); errors.Is(err, errDiffers) || !errors.Is(err, unix.EIO) {
		t.Errorf("a copy that can't be read: got error %v", err)
	}
	lab.Check(t, state.Remove(lastGood("capture-cni")))
	if err := p.restore(t.Context(), bin, state); err != nil {
		t.Errorf("restore without a copy: got error %v", err)
	}
	if err := listDirectories(s, closed); !errors.Is(err, os.ErrClosed) || !errors.Is(directoriesFault(s, closed), os.ErrClosed) {
		t.Errorf("directories: got error %v", err)
	}
}
