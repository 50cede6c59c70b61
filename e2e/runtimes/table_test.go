// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/terms"
)

var all = []string{"ptp", "calico", "portmap", "capture-cni"}

// TestTable asks agent and loaders about directories as reports describe them. In each mode the
// agent sees no fault exactly if the loader calls the plugin.
func TestTable(t *testing.T) {
	t.Parallel()
	good, first := list("second", "calico"), list("first", "cilium-cni")
	for name, test := range map[string]directory{
		"empty":                          {nil, all},
		"the program of the first":       {map[string]string{"05-cilium.conflist": first, "10-calico.conflist": good}, all},
		"the program of the second":      {map[string]string{"05-a.conflist": list("first", "ptp", "gone"), "10-calico.conflist": good}, all},
		"the programs of both":           {map[string]string{"05-cilium.conflist": first, "10-b.conflist": list("second", "gone")}, all},
		"our program":                    {map[string]string{"10-calico.conflist": good}, []string{"calico"}},
		"an empty list in front":         {map[string]string{"05-a.conflist": "", "10-calico.conflist": good}, all},
		"half a list in front":           {map[string]string{"05-a.conflist": first[:40], "10-calico.conflist": good}, all},
		"no plugins in front":            {map[string]string{"05-a.conflist": `{"name": "a", "plugins": []}`, "10-calico.conflist": good}, all},
		"a list in a conf":               {map[string]string{"05-a.conf": good, "10-calico.conflist": good}, all},
		"conf, conflist, json":           {map[string]string{"10-a.conf": conf("plain", "ptp"), "10-a.conflist": good, "10-a.json": conf("json", "ptp")}, all},
		"conflist, json":                 {map[string]string{"10-a.conflist": good, "10-a.json": conf("json", "ptp")}, all},
		"a json alone":                   {map[string]string{"10-a.json": conf("json", "ptp")}, all},
		"a link inside":                  {map[string]string{"10-a.conflist": "->calico.real", "calico.real": good}, all},
		"a link outside":                 {map[string]string{"10-a.conflist": "->../outside"}, all},
		"a dangling link in front":       {map[string]string{"05-a.conflist": "->none", "10-calico.conflist": good}, all},
		"a link to a directory in front": {map[string]string{"05-a.conflist": "->.", "10-calico.conflist": good}, all},
		"a directory with a list's name": {map[string]string{"05-a.conflist/x": "", "10-calico.conflist": good}, all},
		"a drop-in":                      {map[string]string{"10-calico.conflist": good, "second/50.conf": `{"type": "portmap"}`}, all},
		"a drop-in without a program":    {map[string]string{"10-calico.conflist": good, "second/50.conf": `{"type": "gone"}`}, all},
		"a broken drop-in":               {map[string]string{"05-a.conflist": list("first", "ptp"), "first/50.conf": "{", "10-calico.conflist": good}, all},
		"drop-ins alone":                 {map[string]string{"05-a.conflist": `{"cniVersion": "1.0.0", "name": "first"}`, "first/50.conf": `{"type": "ptp"}`, "10-calico.conflist": good}, all},
		"a file with the network's name": {map[string]string{"05-a.conflist": list("first", "ptp"), "first": "", "10-calico.conflist": good}, all},
		"inlined plugins alone":          {map[string]string{"10-a.conflist": strings.Replace(good, `"name"`, `"loadOnlyInlinedPlugins": "true", "name"`, 1), "second/50.conf": "{"}, all},
		"our list in front of another":   {map[string]string{"00-a.conflist": list("first", "cilium-cni"), "10-calico.conflist": good}, all},
	} {
		for runtime, load := range oracles {
			for _, what := range disagree(t, test, runtime, load) {
				t.Errorf("%s, on %s: %s", name, runtime, what)
			}
		}
	}
}

// TestProgramsGoMissing has CRI-O skip the list with the entry, once our program or the one of
// its owner is gone: that is a fault, and it is over once the program is back.
func TestProgramsGoMissing(t *testing.T) {
	t.Parallel()
	for _, mode := range []terms.Mode{terms.Insert, terms.DropIn, terms.Owned} {
		netDir, binDir := makeNode(t, map[string]string{"05-a.conflist": list("first", "ptp"), "10-calico.conflist": list("second", "calico")}, all)
		a := agent{"cri-o", netDir, binDir}
		lab.Check(t, a.place(mode))
		for _, program := range []string{"capture-cni", "ptp"} {
			lab.Check(t, os.Rename(filepath.Join(binDir, program), filepath.Join(binDir, "gone")))
			if fault := a.fault(mode); fault == nil || slices.Contains(loadCRIO(netDir, binDir).Types, "capture-cni") {
				t.Errorf("%s without %s: %v", mode, program, fault)
			}
			if fault := a.place(mode); (fault == nil) != (program == "ptp") || fault != nil && !strings.Contains(fault.Error(), "names capture-cni, whose programs are missing") {
				t.Errorf("%s, placed without %s: %v", mode, program, fault)
			}
			lab.Check(t, os.Rename(filepath.Join(binDir, "gone"), filepath.Join(binDir, program)))
			lab.Check(t, a.place(mode))
			if !slices.Contains(loadCRIO(netDir, binDir).Types, "capture-cni") {
				t.Errorf("%s, with %s again: not called", mode, program)
			}
		}
		lab.Check(t, a.remove())
	}
}

// TestOwnerWrites has the owner of a list delete, recreate, break and replace its file between
// any two steps of the agent. No fault means that the loader calls the plugin, and after removal
// the owner's last file is there.
func TestOwnerWrites(t *testing.T) {
	t.Parallel()
	good := list("podnet", "calico")
	acts := map[string]map[string]string{
		"deletes": {}, "recreates": {"10-a.conflist": good}, "breaks": {"10-a.conflist": good[:30]}, "empties": {"10-a.conflist": ""},
		"renames": {"10-a.conflist.bak": good}, "writes a conf": {"10-a.conf": conf("podnet", "calico")}, "adds a conf": {"10-a.conf": conf("podnet", "calico"), "10-a.conflist": good},
		"puts one in front": {"05-b.conflist": list("other", "ptp"), "10-a.conflist": good}, "links": {"10-a.conflist": "->a.real", "a.real": good},
	}
	for runtime, load := range oracles {
		for _, mode := range []terms.Mode{terms.Insert, terms.DropIn, terms.Owned} {
			for act, after := range acts {
				for step := range 4 {
					netDir, binDir := makeNode(t, map[string]string{"10-a.conflist": good}, all)
					a := agent{runtime, netDir, binDir}
					steps := []func(){func() { _ = a.place(mode) }, func() { _ = a.place(mode) }, func() { _ = a.remove() }, func() {}}
					for i, do := range steps {
						if i == step {
							overwrite(t, netDir, after)
						}
						if do(); a.fault(mode) == nil && !slices.Contains(load(netDir, binDir).Types, "capture-cni") {
							t.Errorf("%s, %s, %s before step %d, after %d: no fault, not called", runtime, mode, act, step, i)
						}
					}
					lab.Check(t, a.remove())
					if diff := cmp.Diff(after, tree(t, netDir)); diff != "" {
						t.Errorf("%s, %s, %s before step %d: removal left (-want +got):\n%s", runtime, mode, act, step, diff)
					}
				}
			}
		}
	}
}

// overwrite makes the owner's files these.
func overwrite(t *testing.T, netDir string, files map[string]string) {
	t.Helper()
	for _, pattern := range []string{"05-*", "10-*", "a.real"} {
		found, err := filepath.Glob(filepath.Join(netDir, pattern))
		lab.Check(t, err)
		for _, path := range found {
			lab.Check(t, os.Remove(path))
		}
	}
	for name, content := range files {
		write(t, filepath.Join(netDir, name), content)
	}
}

// TestListChangesWhileItIsRead has another program write and delete lists without a pause. What
// the agent places is never torn, and it loses no file but those that the writer deletes.
func TestListChangesWhileItIsRead(t *testing.T) {
	t.Parallel()
	netDir, binDir := makeNode(t, map[string]string{"10-calico.conflist": list("second", "calico")}, all)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		path, err := filepath.Join(netDir, "05-a.conflist"), error(nil)
		for err == nil {
			select {
			case <-stop:
				err = os.WriteFile(path, []byte(list("first", "ptp")), 0o644)
				done <- err
				return
			default:
				err = errors.Join(os.WriteFile(path, []byte(list("first", "ptp")), 0o644), os.WriteFile(path, []byte("{"), 0o644), os.Remove(path))
			}
		}
		done <- err
	}()
	a := agent{"cri-o", netDir, binDir}
	for range 200 {
		_ = a.place(terms.Owned)
		if text, err := os.ReadFile(filepath.Join(netDir, entry.OwnedName)); err == nil && !strings.HasSuffix(string(text), "}\n") {
			t.Fatalf("torn: %s", text)
		}
	}
	close(stop)
	lab.Check(t, <-done)
	lab.Check(t, errors.Join(a.place(terms.Owned), a.remove()))
	if diff := cmp.Diff(map[string]string{"05-a.conflist": list("first", "ptp"), "10-calico.conflist": list("second", "calico")}, tree(t, netDir)); diff != "" {
		t.Error(diff)
	}
}
