// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
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

	"github.com/capture-cni/capture-cni/install/kube"
	agentnode "github.com/capture-cni/capture-cni/install/node"
)

// envStep makes this program a worker: a process that does a step of the agent's
// work, and that can be killed before any change.
const envStep = "AGENT_TEST_STEP"

// work is what a worker does, and before which of its changes it is killed.
type work struct {
	Settings agentnode.Settings
	Access   string
	Clean    bool
	DieAt    int // 0: never
}

func init() {
	if text := os.Getenv(envStep); text != "" {
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
	count := 0
	n.Step = func(string) {
		if count++; count == w.DieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
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
func worker(settings agentnode.Settings, access string) (*agentnode.Node, error) {
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

func (n *node) settings(t *testing.T, mode, keys string) agentnode.Settings {
	t.Helper()
	entry, err := agentnode.ParseEntry([]byte(keys), agentnode.Mode(mode), n.stateDir, n.runDir)
	check(t, err)
	return agentnode.Settings{
		Root: "/", Mode: agentnode.Mode(mode), NetDir: n.netDir, BinDirs: []string{n.binDir}, StateDir: n.stateDir, RunDir: n.runDir,
		Binary: filepath.Join(bin, "capture-cni"), Entry: entry, Owner: "capture-cni",
		Credentials: agentnode.CredentialSettings{
			TokenSpec: kube.TokenSpec{Namespace: "mesh", ServiceAccount: "capture-cni", TTL: 24 * time.Hour},
			Server:    n.api.URL, CAFile: filepath.Dir(n.access) + "/ca.crt",
		},
	}
}

// runWorker runs a worker, and reports whether it ended by itself.
func (n *node) runWorker(t *testing.T, w work) (finished bool) {
	t.Helper()
	w.Access = n.access
	text, err := json.Marshal(w)
	check(t, err)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), envStep+"="+string(text))
	out, err := command.CombinedOutput()
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return false
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return true
}

// TestKilledAnywhere kills the agent before each change that it makes while it
// installs, upgrades, switches modes and uninstalls. The node works in the old
// state or the new one, and the next agent completes the change.
func TestKilledAnywhere(t *testing.T) {
	for _, mode := range []string{"insert", "owned", "dropin"} {
		for _, primary := range []string{primaryName, "10-kindnet.conf"} {
			if mode == "dropin" && primary != primaryName {
				continue // there are no drop-ins for a plain configuration
			}
			for _, what := range []string{"install", "upgrade", "switch", "uninstall"} {
				t.Run(mode+" on "+primary+", "+what, func(t *testing.T) {
					t.Parallel()
					for step := 1; ; step++ {
						if killOnce(t, mode, primary, what, step) {
							if step < 3 {
								t.Errorf("only %d changes were made", step)
							}
							return
						}
					}
				})
			}
		}
	}
}

// killOnce reports whether the work was complete before the step.
func killOnce(t *testing.T, mode, primary, what string, step int) (finished bool) {
	t.Helper()
	n := newNode(t)
	check(t, os.Remove(filepath.Join(n.netDir, primaryName)))
	n.write(t, primary, map[string]string{primaryName: kindnet, "10-kindnet.conf": plain}[primary])
	before := files(t, n.netDir)
	w := work{Settings: n.settings(t, mode, "")}
	switch what {
	case "upgrade", "uninstall":
		n.runWorker(t, w)
	case "switch": // of modes
		other := map[string]string{"insert": "owned", "owned": "insert", "dropin": "insert"}[mode]
		n.runWorker(t, work{Settings: n.settings(t, other, "")})
	}
	if what == "upgrade" {
		w.Settings = n.settings(t, mode, `{"logLevel": "debug"}`)
		w.Settings.Binary = otherRelease(t)
	}
	w.Clean = what == "uninstall"
	w.DieAt = step
	finished = n.runWorker(t, w)

	n.expectWorking(t, step)
	w.DieAt = 0
	n.runWorker(t, w)
	if what == "uninstall" {
		if diff := cmp.Diff(before, files(t, n.netDir)); diff != "" {
			t.Errorf("killed before step %d, then cleaned, left:\n%s", step, diff)
		}
		return finished
	}
	if got, err := n.loadedTypes(); err != nil || !strings.HasSuffix(got, " capture-cni") || strings.Count(got, "capture-cni") != 1 {
		t.Errorf("killed before step %d, then installed: a runtime would call %q (%v)", step, got, err)
	}
	for _, directory := range []string{n.netDir, n.binDir, n.stateDir} {
		for name := range files(t, directory) {
			if strings.Contains(name, "-tmp-") {
				t.Errorf("killed before step %d, then installed: %s is left", step, name)
			}
		}
	}
	return finished
}

// expectWorking expects a list that a runtime can load and, where that calls the
// plugin, all files that the plugin needs.
func (n *node) expectWorking(t *testing.T, step int) {
	t.Helper()
	got, err := n.loadedTypes()
	if err != nil || !strings.HasPrefix(got, "ptp") {
		t.Errorf("killed before step %d: a runtime would call %q (%v)", step, got, err)
	}
	if !strings.Contains(got, "capture-cni") {
		return
	}
	version := exec.Command(filepath.Join(n.binDir, "capture-cni"))
	version.Env = []string{"CNI_COMMAND=VERSION"}
	version.Stdin = strings.NewReader(`{"cniVersion":"1.0.0"}`)
	if out, err := version.CombinedOutput(); err != nil {
		t.Errorf("killed before step %d: the plugin that a runtime would call does not run: %v: %s", step, err, out)
	}
	for _, name := range []string{"kubeconfig", "token", "ca.crt"} {
		if content, err := os.ReadFile(filepath.Join(n.stateDir, name)); err != nil || len(content) == 0 {
			t.Errorf("killed before step %d: a runtime would call the plugin, which lacks %s (%v)", step, name, err)
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
		w, err := worker(n.settings(t, "insert", ""), n.access)
		check(t, err)
		act := func() error {
			if clean {
				return w.Clean(false)
			}
			if report := w.Install(t.Context(), false); !report.Good() {
				return fmt.Errorf("%s", report)
			}
			return nil
		}
		if clean {
			n.runWorker(t, work{Settings: n.settings(t, "insert", "")})
		}
		written := false
		w.Step = func(what string) {
			temp, isTry := strings.CutPrefix(what, "try ")
			if _, inNetDir := files(t, n.netDir)["/"+temp]; isTry && inNetDir && !written {
				written = true
				n.write(t, primaryName, newer)
			}
		}
		if err := act(); !written || err == nil || !strings.Contains(err.Error(), "was written by its owner") {
			t.Errorf("clean: %v; written %v; got %v", clean, written, err)
		}
		if got := files(t, n.netDir)["/"+primaryName]; got != newer {
			t.Errorf("clean: %v; the owner's list was lost to %s", clean, got)
		}
		check(t, act())
		if got, err := n.loadedTypes(); err != nil || strings.Contains(got, "capture-cni") == clean {
			t.Errorf("clean: %v; after the next pass a runtime would call %q (%v)", clean, got, err)
		}
	}
}

// otherRelease returns a plugin with another content, which works the same.
func otherRelease(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(bin, "capture-cni"))
	check(t, err)
	path := filepath.Join(t.TempDir(), "capture-cni")
	check(t, os.WriteFile(path, append(content, strconv.Itoa(len(content))...), 0o755))
	return path
}
