// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// Lists with an entry of istio-cni, as its installer writes them.
var (
	withIstioCNI = besideIstioCNI(machine.Kindnet, false)
	withAmbient  = besideIstioCNI(machine.Kindnet, true)
)

// besideIstioCNI appends istio-cni's entry to a list.
func besideIstioCNI(list string, ambient bool) string {
	end := strings.LastIndex(list, "\n\t]")
	return list[:end] + fmt.Sprintf(",\n\t{\"ambient_enabled\": %v, \"cni_agent_run_dir\": \"/var/run/istio-cni\", \"name\": \"istio-cni\", \"type\": \"istio-cni\"}", ambient) + list[end:]
}

// writes are the names of the files that change in a directory.
type writes struct {
	mu    sync.Mutex
	names []string
}

func watchWrites(t *testing.T, directory string) *writes {
	t.Helper()
	watcher, err := fsnotify.NewWatcher()
	lab.Check(t, err)
	lab.Check(t, watcher.Add(directory))
	t.Cleanup(func() { _ = watcher.Close() })
	w := &writes{}
	go func() {
		for event := range watcher.Events {
			w.mu.Lock()
			w.names = append(w.names, event.Name)
			w.mu.Unlock()
		}
	}()
	return w
}

func (w *writes) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = nil
}

func (w *writes) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.names...)
}

// waitForTypes waits until a runtime would call plugins of these types.
func (n *node) waitForTypes(t *testing.T, want string) {
	t.Helper()
	lab.Eventually(t, func() error {
		got, err := n.LoadedTypes()
		if err == nil && got != want {
			err = &unexpected{want, got}
		}
		return err
	})
}

// TestAgentBesideIstioCNI starts an agent with the chart's settings on a node with
// istio-cni: it writes nothing, not even a drop-in to try the runtime, and says why. Once
// istio-cni has left, it places its entry. When istio-cni is back, the entry stays, and the
// next agent is ready, too.
func TestAgentBesideIstioCNI(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"dropin", "insert"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.Write(t, machine.PrimaryName, withIstioCNI)
			c, socket := n.ServeRuntime(t, true)
			c.Silent = mode == "insert"
			before, changes := files(t, n.NetDir), watchWrites(t, n.NetDir)
			a := n.Start(t, "--mode", "auto", "--cri-socket", socket)
			a.WaitForReadyz(t, "has the entry of istio-cni: a pod that both plugins capture does not start: remove istio-cni (https://github.com/capture-cni/capture-cni/blob/")
			a.Ready(t, http.StatusServiceUnavailable)
			a.WaitForMetric(t, `capture_cni_other_mesh_entry{decision="refused",type="istio-cni"} 1`)
			a.WaitForLog(t, `msg="preflight found a problem" problem="10-kindnet.conflist, which the runtime loads, has the entry of istio-cni`)
			seen := c.Asked.Load()
			lab.Eventually(t, func() error { // two more checks begin, because the agent has not decided on its mode
				if now := c.Asked.Load(); now < seen+2 {
					return fmt.Errorf("the runtime was asked %d times, and %d times before", now, seen)
				}
				return nil
			})
			if got := changes.list(); len(got) > 0 {
				t.Errorf("next to istio-cni, the agent wrote %q", got)
			}
			if diff := cmp.Diff(before, files(t, n.NetDir)); diff != "" {
				t.Errorf("next to istio-cni, the agent left:\n%s", diff)
			}
			if got := strings.Count(a.Log.String(), "another mesh's plugin is in the list"); got != 1 {
				t.Errorf("the log names istio-cni %d times: %s", got, a.Log)
			}

			n.Write(t, machine.PrimaryName, machine.Kindnet)
			if body := a.Ready(t); !strings.Contains(body, "in mode "+mode) { // never during a trial
				t.Errorf("istio-cni has left: %s", body)
			}
			n.waitForTypes(t, "ptp portmap capture-cni")
			a.Stop(t)

			n.Write(t, machine.PrimaryName, besideIstioCNI(files(t, n.NetDir)["/"+machine.PrimaryName], false))
			next := n.Start(t, "--mode", "auto", "--cri-socket", socket)
			if body := next.Ready(t); !strings.Contains(body, "in mode "+mode) {
				t.Errorf("istio-cni is back: %s", body)
			}
			next.WaitForMetric(t, `capture_cni_other_mesh_entry{decision="kept",type="istio-cni"} 1`)
			n.waitForTypes(t, "ptp portmap istio-cni capture-cni")
		})
	}
}

// TestMigrationFlag places the entry next to istio-cni on request, and never next to one
// that captures ambient pods.
func TestMigrationFlag(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"insert": "ptp portmap istio-cni capture-cni", "owned": "ptp portmap capture-cni"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.Write(t, machine.PrimaryName, withAmbient)
			before := files(t, n.NetDir)
			a := n.Start(t, "--mode", mode, "--beside-istio-cni")
			a.WaitForReadyz(t, "with ambient mode enabled, which captures ambient pods and those with sidecars: remove capture-cni, or disable ambient mode in istio-cni")
			if diff := cmp.Diff(before, files(t, n.NetDir)); diff != "" {
				t.Errorf("next to ambient mode, the agent left:\n%s", diff)
			}
			n.Write(t, machine.PrimaryName, withIstioCNI)
			a.Ready(t)
			a.WaitForMetric(t, `capture_cni_other_mesh_entry{decision="allowed",type="istio-cni"} 1`)
			if got, err := n.LoadedTypes(); err != nil || got != want {
				t.Errorf("a runtime would call %q, want %q (%v)", got, want, err)
			}
			if out, err := n.Command("verify", "--mode", mode, "--beside-istio-cni"); err != nil {
				t.Errorf("verify: %v: %s", err, out)
			}
		})
	}
}

// TestAmbientComesLater has istio-cni's ambient mode enabled while the agent's own list is
// loaded: istio-cni is in that list from then on, also for the next agent, in another mode.
func TestAmbientComesLater(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.Write(t, machine.PrimaryName, withIstioCNI)
	a := n.StartReady(t, "--mode", "owned", "--beside-istio-cni")
	n.Write(t, machine.PrimaryName, withAmbient)
	n.waitForTypes(t, "ptp portmap istio-cni capture-cni")
	a.WaitForMetric(t, `capture_cni_other_mesh_entry{decision="kept",type="istio-cni"} 1`)
	a.Ready(t)
	a.Stop(t)
	next := n.Start(t, "--mode", "insert")
	if body := next.Ready(t); !strings.Contains(body, "in mode owned") {
		t.Errorf("after a change of the mode: %s", body)
	}
	n.waitForTypes(t, "ptp portmap istio-cni capture-cni")
	n.Write(t, machine.PrimaryName, machine.Kindnet)
	n.waitForTypes(t, "ptp portmap capture-cni")
	next.WaitForReadyz(t, "in mode insert")
	if _, found := files(t, n.NetDir)["/00-capture-cni.conflist"]; found {
		t.Error("istio-cni has left, and the agent has not changed its mode")
	}
}
