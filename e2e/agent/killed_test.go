// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	agentnode "github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/report"
)

// envWork makes this program a worker: a process that does a part of the agent's
// work, on its main thread, and that can be killed before any change.
const envWork = "AGENT_TEST_WORK"

// work is what a worker does.
type work struct {
	Settings agentnode.Settings
	Access   string
	Clean    bool
}

func init() {
	if text := os.Getenv(envWork); text != "" {
		os.Exit(doWork(text))
	}
}

func doWork(text string) int {
	var w work
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		err = w.do()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// do does the work in this process, by the agent's own code.
func (w work) do() error {
	config, err := clientcmd.BuildConfigFromFlags("", w.Access)
	if err != nil {
		return err
	}
	api, err := kube.New(config)
	if err != nil {
		return err
	}
	n := agentnode.New(w.Settings, api, nil, slog.New(slog.DiscardHandler))
	if w.Clean {
		return n.Clean(true)
	}
	if report := n.Install(context.Background(), false); !report.Good() {
		return errors.New(report.String())
	}
	return nil
}

// newWork returns the work of an agent with these keys of the entry.
func (n *node) newWork(t *testing.T, mode, keys string) work {
	t.Helper()
	parsed, err := conflist.ParseEntry([]byte(keys), report.Mode(mode), n.StateDir, n.RunDir)
	lab.Check(t, err)
	netDir, tmpfiles := n.NetDir, ""
	if mode == string(report.MultusChain) {
		c := n.chain(t)
		netDir, tmpfiles = c.directory, c.tmpfiles
	}
	return work{Access: n.Access, Settings: agentnode.Settings{
		Root: "/", Mode: report.Mode(mode), NetDir: netDir, TmpfilesDir: tmpfiles, BinDirs: []string{n.BinDir}, StateDir: n.StateDir, RunDir: n.RunDir,
		Binary: smallRelease(t, "1"), Entry: parsed, Owner: "capture-cni",
		Credentials: credentials.Settings{
			OnNode:    true,
			TokenSpec: kube.TokenSpec{Namespace: "mesh", ServiceAccount: "capture-cni", TTL: 24 * time.Hour},
			Server:    n.API.URL, CAFile: filepath.Dir(n.Access) + "/ca.crt",
		},
	}}
}

// run runs a worker, and reports whether it ended by itself.
func (w work) run(t *testing.T, cut lab.Cut) (finished bool) {
	t.Helper()
	out, err := w.in(t, cut.Command(os.Args[0])).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Sys().(syscall.WaitStatus).Signaled() {
		return false
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return true
}

// in gives a command the work.
func (w work) in(t *testing.T, command *exec.Cmd) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(w)
	lab.Check(t, err)
	command.Env = append(os.Environ(), envWork+"="+string(text))
	return command
}

// TestKilledAnywhere kills the agent's process before each change of the kernel's files that it
// makes. The node works in the old state or the new one, and the next agent completes the
// change. e2e/runtimes.TestHistories has the other modes, switches and removals.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode, primary string
		works         []string
	}{
		{"insert", machine.PrimaryName, []string{"install"}},
		{"owned", "10-kindnet.conf", []string{"restore"}},                                  // what an earlier release did to it
		{"multus-chain", machine.PrimaryName, []string{"install", "upgrade", "uninstall"}}, // its directory is no other mode's
	} {
		for _, what := range tt.works {
			t.Run(tt.mode+" on "+tt.primary+", "+what, func(t *testing.T) {
				t.Parallel()
				killAnywhere(t, tt.mode, tt.primary, what)
			})
		}
	}
}

// converted is what releases before 0.4 made of plain.
const converted = "{\n  \"cniVersion\": \"0.3.1\",\n  \"name\": \"kindnet\",\n  \"plugins\": [\n    {\n      \"cniVersion\": \"0.3.1\",\n      \"name\": \"kindnet\",\n      \"type\": \"ptp\"\n    },\n    {\n      \"type\": \"capture-cni\"\n    }\n  ]\n}\n"

// killAnywhere does a work once for each of its changes, and kills it before that.
func killAnywhere(t *testing.T, mode, primary, what string) {
	n := newNode(t)
	lab.Check(t, os.Remove(filepath.Join(n.NetDir, machine.PrimaryName)))
	n.Write(t, primary, map[string]string{machine.PrimaryName: machine.Kindnet, "10-kindnet.conf": plain}[primary])
	before := files(t, n.NetDir)
	w := n.newWork(t, mode, "")
	switch what {
	case "upgrade", "uninstall":
		lab.Check(t, w.do())
	case "restore":
		lab.Check(t, w.do())
		lab.Check(t, os.Remove(filepath.Join(n.NetDir, "00-capture-cni.conflist")))
		lab.Check(t, os.Rename(filepath.Join(n.NetDir, primary), filepath.Join(n.NetDir, primary+".capture-cni-original")))
		n.Write(t, machine.PrimaryName, converted)
	}
	if what == "upgrade" {
		w = n.newWork(t, mode, `{"logLevel": "debug"}`)
		w.Settings.Binary = smallRelease(t, "2")
	}
	w.Clean = what == "uninstall"
	prepared := filepath.Join(t.TempDir(), "prepared")
	copyTree(t, n.Dir, prepared)
	for _, cut := range n.changes(t, w) {
		copyTree(t, prepared, n.Dir)
		if w.run(t, cut) {
			t.Errorf("%s: the work ended by itself", cut)
		}
		n.expectWorking(t, cut)
		lab.Check(t, w.do())
		switch got := files(t, n.NetDir); what {
		case "uninstall":
			if diff := cmp.Diff(before, got); diff != "" {
				t.Errorf("%s, then cleaned, left:\n%s", cut, diff)
			}
			if left := files(t, n.Dir+"/tmpfiles.d"); len(left) > 0 {
				t.Errorf("%s, then cleaned, left %q", cut, left)
			}
			continue
		case "restore":
			delete(got, "/00-capture-cni.conflist")
			if diff := cmp.Diff(before, got); diff != "" {
				t.Errorf("%s, then installed: the owner's files are not restored:\n%s", cut, diff)
			}
		}
		if got, err := n.LoadedTypes(); err != nil || !strings.HasSuffix(got, " capture-cni") || strings.Count(got, "capture-cni") != 1 {
			t.Errorf("%s, then installed: a runtime would call %q (%v)", cut, got, err)
		}
		if left := files(t, n.Dir); hasTemp(left) {
			t.Errorf("%s, then installed: a temporary file is left: %q", cut, slices.Collect(maps.Keys(left)))
		}
	}
}

// changes does the work, and returns the cut before each of its changes. All modes install
// programs and credentials in the same way, so that only mode insert has those cuts.
func (n *node) changes(t *testing.T, w work) (cuts []lab.Cut) {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	out, err := w.in(t, exec.Command("strace", "-qq", "-y", "-o", trace, "-e", "trace="+strings.Join(lab.FileChanges(), ","), os.Args[0])).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	shared := regexp.MustCompile(n.BinDir + "|" + n.StateDir)
	switch w.Settings.Mode {
	case report.Insert:
		shared = regexp.MustCompile("^$")
	case report.MultusChain: // has its entry in the state directory, too
		shared = regexp.MustCompile(n.BinDir)
	}
	calls := map[string]int{}
	for line := range strings.Lines(string(read(t, trace))) {
		call, arguments, isCall := strings.Cut(line, "(")
		if !isCall {
			continue // a signal
		}
		calls[call]++
		if !shared.MatchString(arguments) {
			cuts = append(cuts, lab.Cut{Call: call, Nth: calls[call]})
		}
	}
	if len(cuts) < 2 {
		t.Errorf("only %d changes were made", len(cuts))
	}
	return cuts
}

// copyTree replaces a directory with a copy of another one. The copy has the same files,
// because the agent writes none in place.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	lab.Check(t, os.RemoveAll(to))
	if out, err := exec.Command("cp", "--archive", "--link", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// expectWorking expects a list that a runtime can load and, where that calls the
// plugin, all files that the plugin needs.
func (n *node) expectWorking(t *testing.T, cut lab.Cut) {
	t.Helper()
	got, err := n.LoadedTypes()
	if err != nil || !strings.HasPrefix(got, "ptp") {
		t.Errorf("%s: a runtime would call %q (%v)", cut, got, err)
	}
	if !strings.Contains(got, "capture-cni") {
		return
	}
	version := exec.Command(filepath.Join(n.BinDir, "capture-cni"))
	version.Env = []string{"CNI_COMMAND=VERSION"}
	version.Stdin = strings.NewReader(`{"cniVersion":"1.0.0"}`)
	if out, err := version.CombinedOutput(); err != nil {
		t.Errorf("%s: the plugin that a runtime would call does not run: %v: %s", cut, err, out)
	}
	for _, name := range []string{"kubeconfig", "token", "ca.crt"} {
		if content, err := os.ReadFile(filepath.Join(n.StateDir, name)); err != nil || len(content) == 0 {
			t.Errorf("%s: a runtime would call the plugin, which lacks %s (%v)", cut, name, err)
		}
	}
}

func hasTemp(files map[string]string) bool {
	for name := range files {
		if host.IsTemp(filepath.Base(name)) {
			return true
		}
	}
	return false
}

// smallRelease returns a program that responds as the plugin does, next to one that responds as
// capture-cni-lookup. Each work copies and compares them, and runs them.
func smallRelease(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	lab.Check(t, lab.WriteProgram(filepath.Join(dir, "capture-cni"), []byte("#!/bin/sh\necho '{\"supportedVersions\": [\"1.0.0\"]}' # "+version+"\n")))
	lab.Check(t, lab.WriteProgram(filepath.Join(dir, "capture-cni-lookup"), []byte("#!/bin/sh\necho capture-cni-lookup "+version+"\n")))
	return filepath.Join(dir, "capture-cni")
}
