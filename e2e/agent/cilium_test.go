// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

const (
	ciliumList   = "/05-cilium.conflist"
	ciliumDropIn = "/cilium/capture-cni.conf"
	ownedList    = "/00-capture-cni.conflist"
	renamed      = ".cilium_bak"
)

// newCiliumNode makes a node with no list, which a runtime watches.
func newCiliumNode(t *testing.T, dropIns bool) (n *node, socket string) {
	t.Helper()
	n = newNode(t)
	lab.Check(t, os.Remove(filepath.Join(n.NetDir, machine.PrimaryName)))
	_, socket = n.ServeRuntime(t, dropIns)
	return n, socket
}

// cilium is a process of the part of Cilium's agent that writes and guards CNI
// configuration.
type cilium struct {
	log  *lab.Log
	stop func()
}

// startCilium runs it until stop, or until the test ends.
func (n *node) startCilium(t *testing.T, flags ...string) cilium {
	t.Helper()
	c := cilium{log: &lab.Log{}}
	command := exec.Command(lab.Part(t, "cilium-cni-config"), append([]string{"--write-cni-conf-when-ready=" + n.NetDir + ciliumList}, flags...)...)
	command.Stdout, command.Stderr = c.log, c.log
	lab.Check(t, command.Start())
	c.stop = func() { _ = command.Process.Kill(); _ = command.Wait() }
	t.Cleanup(c.stop)
	lab.Eventually(t, func() error {
		got, err := n.LoadedTypes()
		if log := c.log.String(); err == nil && (!strings.Contains(log, "Started hive") || !strings.Contains(got, "cilium-cni")) {
			err = &unexpected{"a list of Cilium's", got + log}
		}
		return err
	})
	return c
}

// wrote returns an error unless Cilium has written its list.
func (c cilium) wrote() error {
	if log := c.log.String(); !strings.Contains(log, "Wrote CNI configuration") {
		return &unexpected{"that Cilium wrote its list", log}
	}
	return nil
}

// settle waits until Cilium, if it is exclusive, and then the agent, if one runs, has checked
// the directory of lists, and neither has changed it, so neither will.
func (n *node) settle(t *testing.T, exclusive bool, agent *machine.Agent) {
	t.Helper()
	probe := n.NetDir + "/99-probe.conf"
	changes := watchWrites(t, n.NetDir)
	for range 4 {
		changes.clear()
		for range 2 { // the first of two checks may have begun before
			if exclusive {
				lab.Check(t, os.WriteFile(probe, nil, 0o600))
				lab.Eventually(t, func() error { return os.Remove(probe + renamed) })
			}
		}
		if agent != nil {
			n.waitForCheck(t, agent)
		}
		if !slices.ContainsFunc(changes.list(), func(name string) bool { return !strings.HasPrefix(name, probe) }) {
			return
		}
	}
	t.Fatalf("these files still change: %q", changes.list())
}

// TestOracleCilium has Cilium's own code write its list before the agent starts, and again
// when Cilium is restarted. Where the agent's mode can work, both files stay, the runtime
// calls the plugin, and nothing is written any more.
func TestOracleCilium(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode      string
		exclusive bool
		dropIns   bool
		files     []string // next to Cilium's list
		edited    bool
	}{
		{"dropin", true, true, []string{ciliumDropIn}, false},
		{"auto", true, true, []string{ciliumDropIn}, false},
		{"dropin", false, true, []string{ciliumDropIn}, false},
		{"auto", false, true, []string{ciliumDropIn}, false},
		{"auto", false, false, nil, true},
		{"insert", false, false, nil, true},
		{"owned", false, false, []string{ownedList}, false},
	} {
		t.Run(fmt.Sprintf("%s exclusive %v drop-ins %v", tt.mode, tt.exclusive, tt.dropIns), func(t *testing.T) {
			t.Parallel()
			n, socket := newCiliumNode(t, tt.dropIns)
			flag := fmt.Sprintf("--cni-exclusive=%v", tt.exclusive)
			c := n.startCilium(t, flag)
			original := files(t, n.NetDir)[ciliumList]
			a := n.Start(t, "--mode", tt.mode, "--cri-socket", socket)
			for range 2 {
				a.Ready(t)
				if tt.edited { // Cilium replaces the edited list when it starts
					lab.Eventually(t, c.wrote)
				}
				n.settle(t, tt.exclusive, a)
				a.Ready(t)
				n.waitForTypes(t, "cilium-cni capture-cni")
				got := files(t, n.NetDir)
				if edited := got[ciliumList] != original; edited != tt.edited {
					t.Errorf("Cilium's list is edited: %v\n%s", edited, got[ciliumList])
				}
				if names, want := slices.Sorted(maps.Keys(got)), slices.Sorted(slices.Values(append(tt.files, ciliumList))); !slices.Equal(names, want) {
					t.Errorf("the directory has %q, want %q", names, want)
				}
				c.stop()
				c = n.startCilium(t, flag)
			}
			if out, err := n.Command("preflight", "--mode", tt.mode, "--cri-socket", socket); strings.Contains(out, "Cilium renamed") {
				t.Errorf("preflight: %v: %s", err, out)
			}
			if _, metrics := a.Get("/metrics"); strings.Contains(metrics, "capture_cni_entry_contended{") {
				t.Error("the agent counts Cilium as one that keeps removing the entry")
			}
		})
	}
}

// TestOracleCiliumExclusive has Cilium's own code undo what the agent writes, in the modes that
// can't work with it: the agent says so, and writes less and less often. Cilium's list is
// there at each moment, and the entry, once Cilium has ended.
func TestOracleCiliumExclusive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		mode, finding string
	}{
		{"insert", "Cilium renamed 10-kindnet.conflist.cilium_bak: with cni.exclusive, Cilium also removes the entry from its own list"},
		{"owned", "Cilium renamed 00-capture-cni.conflist.cilium_bak: with cni.exclusive, Cilium also renames the agent's list"},
		{"auto", "note: Cilium renamed 10-kindnet.conflist.cilium_bak: with cni.exclusive, Cilium removes entries from its own list"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			n, socket := newCiliumNode(t, false)
			n.Write(t, machine.PrimaryName, machine.Kindnet) // of the primary before Cilium
			a := n.StartReady(t, "--mode", tt.mode, "--cri-socket", socket)
			c := n.startCilium(t, "--cni-exclusive")
			for deadline := time.Now().Add(lab.Patience); !strings.Contains(a.Log.String(), "back-off=8s"); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the agent does not write less often: %s", a.Log)
				}
				if got, err := n.LoadedTypes(); !errors.Is(err, os.ErrNotExist) && (err != nil || !strings.Contains(got, "cilium-cni")) { // a list may be renamed before it is read
					t.Fatalf("a runtime would call %q: %v", got, err)
				}
			}
			a.Ready(t, http.StatusServiceUnavailable)
			lab.Eventually(t, func() error {
				return errors.Join(a.ExpectReadyz("entry: Cilium keeps removing the entry (mode "), a.ExpectReadyz(ciliumList+", network cilium); it renamed "),
					a.ExpectReadyz(renamed+", as it does with cni.exclusive: set cni.exclusive=false in Cilium's values, or use --mode dropin"))
			})
			lab.Check(t, a.ExpectMetric(`capture_cni_entry_contended{writer="cilium"} 1`))
			repairs := strings.Count(a.Log.String(), "back-off=") + 5
			if undone := strings.Count(c.log.String(), "Wrote CNI configuration") + strings.Count(c.log.String(), "Renaming non-Cilium"); undone > repairs+5 {
				t.Errorf("Cilium wrote %d times, the agent %d times: %s", undone, repairs, c.log)
			}
			if out, _ := n.Command("preflight", "--mode", tt.mode, "--cri-socket", socket); !strings.Contains(out, tt.finding) {
				t.Errorf("preflight says %s, want %s", out, tt.finding)
			}
			c.stop()
			lab.Eventually(t, n.hasEntry)
			if got := files(t, n.NetDir); !strings.Contains(got[ciliumList], "cilium-cni") || !strings.Contains(got["/"+machine.PrimaryName+renamed], "kindnet") {
				t.Errorf("a list is lost: %q", got)
			}
		})
	}
}

// TestOracleCiliumTakesOver has Cilium chain itself behind the primary: it copies the list,
// which has the entry already, and renames it. The entry works there, and a removal leaves
// none in the renamed list, from which Cilium would bring it back.
func TestOracleCiliumTakesOver(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"insert": "ptp portmap capture-cni cilium-cni", "dropin": "ptp portmap cilium-cni capture-cni"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n, socket := newCiliumNode(t, mode == "dropin")
			n.Write(t, machine.PrimaryName, machine.Kindnet)
			a := n.StartReady(t, "--mode", mode, "--cri-socket", socket)
			n.startCilium(t, "--cni-exclusive", "--cni-chaining-mode=generic-veth", "--cni-chaining-target=kindnet")
			n.settle(t, true, a)
			a.Ready(t)
			n.waitForTypes(t, want)
			a.Stop(t)
			if out, err := n.Command("uninstall", "--mode", mode); err != nil {
				t.Errorf("uninstall: %v: %s", err, out)
			}
			n.settle(t, true, nil)
			n.waitForTypes(t, "ptp portmap cilium-cni")
			for name, content := range files(t, n.NetDir) {
				if strings.Contains(content, "capture-cni") {
					t.Errorf("%s is left: %s", name, content)
				}
			}
		})
	}
}
