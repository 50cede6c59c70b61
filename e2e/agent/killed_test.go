// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	agentnode "github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/settings"
	"github.com/capture-cni/capture-cni/install/terms"
)

// envWork makes this program a worker: a process that does a part of the agent's
// work, on its main thread, and that can be killed before any change.
const envWork = "AGENT_TEST_WORK"

// work is what a worker does.
type work struct {
	Settings settings.Node
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
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return 2
	}
	n, err := worker(w.Settings, w.Access)
	if err != nil {
		return 2
	}
	if w.Clean {
		err = n.Clean(true)
	} else if report := n.Install(context.Background(), false); !report.Good() {
		err = fmt.Errorf("%s", report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// worker returns the agent's own code, without its process.
func worker(settings settings.Node, access string) (*agentnode.Node, error) {
	config, err := clientcmd.BuildConfigFromFlags("", access)
	if err != nil {
		return nil, err
	}
	api, err := kube.New(config)
	if err != nil {
		return nil, err
	}
	return agentnode.New(settings, api, nil, slog.New(slog.DiscardHandler)), nil
}

func (n *node) settings(t *testing.T, mode, keys string) settings.Node {
	t.Helper()
	parsed, err := entry.Parse([]byte(keys), terms.Mode(mode), n.StateDir, n.RunDir)
	lab.Check(t, err)
	netDir, tmpfiles := n.NetDir, ""
	if mode == string(terms.MultusChain) {
		c := n.chain(t)
		netDir, tmpfiles = c.directory, c.tmpfiles
	}
	return settings.Node{
		Root: "/", Mode: terms.Mode(mode), NetDir: netDir, TmpfilesDir: tmpfiles, BinDirs: []string{n.BinDir}, StateDir: n.StateDir, RunDir: n.RunDir,
		Binary: filepath.Join(machine.Bin, "capture-cni"), Entry: parsed, Owner: "capture-cni",
		Credentials: settings.CredentialSettings{
			OnNode:    true,
			TokenSpec: kube.TokenSpec{Namespace: "mesh", ServiceAccount: "capture-cni", TTL: 24 * time.Hour},
			Server:    n.API.URL, CAFile: filepath.Dir(n.Access) + "/ca.crt",
		},
	}
}

// runWorker runs a worker, and reports whether it ended by itself.
func (n *node) runWorker(t *testing.T, w work, cut lab.Cut) (finished bool) {
	t.Helper()
	out, err := n.workerOf(t, w, cut.Command(os.Args[0])).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Sys().(syscall.WaitStatus).Signaled() {
		return false
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return true
}

// workerOf gives a command its work.
func (n *node) workerOf(t *testing.T, w work, command *exec.Cmd) *exec.Cmd {
	t.Helper()
	w.Access = n.Access
	text, err := json.Marshal(w)
	lab.Check(t, err)
	command.Env = append(os.Environ(), envWork+"="+string(text))
	return command
}

// TestKilledAnywhere kills the agent before each change that it makes while it
// installs, upgrades, switches modes and uninstalls. The node works in the old
// state or the new one, and the next agent completes the change.
func TestKilledAnywhere(t *testing.T) {
	for _, mode := range []string{"insert", "owned", "dropin", "multus-chain"} {
		for _, primary := range []string{machine.PrimaryName, "10-kindnet.conf"} {
			if mode != "owned" && primary != machine.PrimaryName {
				continue // the other modes need a list
			}
			for _, what := range []string{"install", "upgrade", "switch", "uninstall", "restore"} {
				if what == "restore" && (mode != "owned" || primary == machine.PrimaryName) {
					continue // of what an earlier release did to a plain configuration
				}
				if what == "switch" && (mode == "multus-chain" || primary != machine.PrimaryName) {
					continue // multus-chain has another directory, and no other mode takes a plain configuration
				}
				t.Run(mode+" on "+primary+", "+what, func(t *testing.T) {
					t.Parallel()
					changes := 0
					for _, call := range lab.FileChanges() {
						for cut := (lab.Cut{Call: call, Nth: 1}); !killOnce(t, mode, primary, what, cut); cut.Nth++ {
							changes++
						}
					}
					if changes < 3 {
						t.Errorf("only %d changes were made", changes)
					}
				})
			}
		}
	}
}

// converted is what releases before 0.4 made of plain.
const converted = "{\n  \"cniVersion\": \"0.3.1\",\n  \"name\": \"kindnet\",\n  \"plugins\": [\n    {\n      \"cniVersion\": \"0.3.1\",\n      \"name\": \"kindnet\",\n      \"type\": \"ptp\"\n    },\n    {\n      \"type\": \"capture-cni\"\n    }\n  ]\n}\n"

// killOnce reports whether the work was complete before the cut.
func killOnce(t *testing.T, mode, primary, what string, cut lab.Cut) (finished bool) {
	t.Helper()
	n := newNode(t)
	lab.Check(t, os.Remove(filepath.Join(n.NetDir, machine.PrimaryName)))
	n.Write(t, primary, map[string]string{machine.PrimaryName: machine.Kindnet, "10-kindnet.conf": plain}[primary])
	before := files(t, n.NetDir)
	w := work{Settings: n.settings(t, mode, "")}
	switch what {
	case "upgrade", "uninstall":
		n.runWorker(t, w, lab.Cut{})
	case "restore":
		n.runWorker(t, w, lab.Cut{})
		lab.Check(t, os.Remove(filepath.Join(n.NetDir, "00-capture-cni.conflist")))
		lab.Check(t, os.Rename(filepath.Join(n.NetDir, primary), filepath.Join(n.NetDir, primary+".capture-cni-original")))
		n.Write(t, machine.PrimaryName, converted)
	case "switch": // of modes
		other := map[string]string{"insert": "owned", "owned": "insert", "dropin": "insert"}[mode]
		n.runWorker(t, work{Settings: n.settings(t, other, "")}, lab.Cut{})
	}
	if what == "upgrade" {
		w.Settings = n.settings(t, mode, `{"logLevel": "debug"}`)
		w.Settings.Binary = otherRelease(t)
	}
	w.Clean = what == "uninstall"
	finished = n.runWorker(t, w, cut)

	n.expectWorking(t, cut)
	n.runWorker(t, w, lab.Cut{})
	if what == "uninstall" {
		if diff := cmp.Diff(before, files(t, n.NetDir)); diff != "" {
			t.Errorf("%s, then cleaned, left:\n%s", cut, diff)
		}
		if left := files(t, n.Dir+"/tmpfiles.d"); len(left) > 0 {
			t.Errorf("%s, then cleaned, left %q", cut, left)
		}
		return finished
	}
	if what == "restore" {
		installed := files(t, n.NetDir)
		delete(installed, "/00-capture-cni.conflist")
		if diff := cmp.Diff(before, installed); diff != "" {
			t.Errorf("%s, then installed: the owner's files are not restored:\n%s", cut, diff)
		}
	}
	if got, err := n.LoadedTypes(); err != nil || !strings.HasSuffix(got, " capture-cni") || strings.Count(got, "capture-cni") != 1 {
		t.Errorf("%s, then installed: a runtime would call %q (%v)", cut, got, err)
	}
	for _, directory := range []string{n.NetDir, n.BinDir, n.StateDir, w.Settings.TmpfilesDir} {
		if directory == "" {
			continue
		}
		for name := range files(t, directory) {
			if strings.Contains(name, "-tmp-") {
				t.Errorf("%s, then installed: %s is left", cut, name)
			}
		}
	}
	return finished
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

// TestNothingIsLost has the primary's owner write its list between the moment at
// which the agent reads the list and the one at which it replaces the file.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	const newer = `{"cniVersion": "0.3.1", "name": "kindnet", "plugins": [{"type": "ptp", "mtu": 9000}]}`
	for _, clean := range []bool{false, true} {
		n := newNode(t)
		w := work{Settings: n.settings(t, "insert", ""), Clean: clean}
		if clean {
			n.runWorker(t, work{Settings: w.Settings}, lab.Cut{})
		}
		// The worker waits before it syncs its temporary file.
		slow := exec.Command("strace", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:delay_enter=500000", os.Args[0])
		command := n.workerOf(t, w, slow)
		var stderr strings.Builder
		command.Stderr = &stderr
		lab.Check(t, command.Start())
		for range time.Tick(time.Millisecond) {
			if hasTemp(files(t, n.NetDir)) {
				n.Write(t, machine.PrimaryName, newer)
				break
			}
		}
		if err := command.Wait(); err == nil || !strings.Contains(stderr.String(), "was written by its owner") {
			t.Errorf("clean: %v; got %v: %s", clean, err, stderr.String())
		}
		if got := files(t, n.NetDir)["/"+machine.PrimaryName]; got != newer {
			t.Errorf("clean: %v; the owner's list was lost to %s", clean, got)
		}
		n.runWorker(t, w, lab.Cut{})
		if got, err := n.LoadedTypes(); err != nil || strings.Contains(got, "capture-cni") == clean {
			t.Errorf("clean: %v; after the next pass a runtime would call %q (%v)", clean, got, err)
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

// otherRelease returns a plugin with another content, which works the same, next to its
// capture-cni-lookup.
func otherRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"capture-cni", "capture-cni-lookup"} {
		content, err := os.ReadFile(filepath.Join(machine.Bin, name))
		lab.Check(t, err)
		lab.Check(t, os.WriteFile(filepath.Join(dir, name), append(content, strconv.Itoa(len(content))...), 0o755))
	}
	return filepath.Join(dir, "capture-cni")
}
