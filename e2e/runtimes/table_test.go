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
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
)

var all = []string{"ptp", "calico", "portmap", "capture-cni"}

// broken returns all programs, one of them broken in a way.
func broken(name, way string) []string {
	return append(slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == name }), name+":"+way)
}

// TestTable asks agent and loaders about directories as reports describe them. In each mode the
// agent sees no fault exactly if the loader calls the plugin.
func TestTable(t *testing.T) {
	t.Parallel()
	good, first := list("second", "calico"), list("first", "cilium-cni")
	for name, test := range map[string]directory{
		"empty":                          {files: nil, programs: all},
		"the program of the first":       {files: map[string]string{"05-cilium.conflist": first, "10-calico.conflist": good}, programs: all},
		"the program of the second":      {files: map[string]string{"05-a.conflist": list("first", "ptp", "gone"), "10-calico.conflist": good}, programs: all},
		"the programs of both":           {files: map[string]string{"05-cilium.conflist": first, "10-b.conflist": list("second", "gone")}, programs: all},
		"our program":                    {files: map[string]string{"10-calico.conflist": good}, programs: []string{"calico"}},
		"an empty list in front":         {files: map[string]string{"05-a.conflist": "", "10-calico.conflist": good}, programs: all},
		"half a list in front":           {files: map[string]string{"05-a.conflist": first[:40], "10-calico.conflist": good}, programs: all},
		"no plugins in front":            {files: map[string]string{"05-a.conflist": `{"name": "a", "plugins": []}`, "10-calico.conflist": good}, programs: all},
		"a list in a conf":               {files: map[string]string{"05-a.conf": good, "10-calico.conflist": good}, programs: all},
		"conf, conflist, json":           {files: map[string]string{"10-a.conf": conf("plain", "ptp"), "10-a.conflist": good, "10-a.json": conf("json", "ptp")}, programs: all},
		"conflist, json":                 {files: map[string]string{"10-a.conflist": good, "10-a.json": conf("json", "ptp")}, programs: all},
		"a json alone":                   {files: map[string]string{"10-a.json": conf("json", "ptp")}, programs: all},
		"a link inside":                  {files: map[string]string{"10-a.conflist": "->calico.real", "calico.real": good}, programs: all},
		"a link outside":                 {files: map[string]string{"10-a.conflist": "->../outside"}, programs: all},
		"a dangling link in front":       {files: map[string]string{"05-a.conflist": "->none", "10-calico.conflist": good}, programs: all},
		"a link to a directory in front": {files: map[string]string{"05-a.conflist": "->.", "10-calico.conflist": good}, programs: all},
		"a directory with a list's name": {files: map[string]string{"05-a.conflist/x": "", "10-calico.conflist": good}, programs: all},
		"a drop-in":                      {files: map[string]string{"10-calico.conflist": good, "second/50.conf": `{"type": "portmap"}`}, programs: all},
		"a drop-in without a program":    {files: map[string]string{"10-calico.conflist": good, "second/50.conf": `{"type": "gone"}`}, programs: all},
		"a broken drop-in":               {files: map[string]string{"05-a.conflist": list("first", "ptp"), "first/50.conf": "{", "10-calico.conflist": good}, programs: all},
		"drop-ins alone":                 {files: map[string]string{"05-a.conflist": `{"cniVersion": "1.0.0", "name": "first"}`, "first/50.conf": `{"type": "ptp"}`, "10-calico.conflist": good}, programs: all},
		"a file with the network's name": {files: map[string]string{"05-a.conflist": list("first", "ptp"), "first": "", "10-calico.conflist": good}, programs: all},
		"inlined plugins alone":          {files: map[string]string{"10-a.conflist": strings.Replace(good, `"name"`, `"loadOnlyInlinedPlugins": "true", "name"`, 1), "second/50.conf": "{"}, programs: all},
		"an empty program":               {files: map[string]string{"05-a.conflist": list("first", "ptp"), "10-calico.conflist": good}, programs: broken("ptp", "empty")},
		"a program of no form":           {files: map[string]string{"05-a.conflist": list("first", "ptp"), "10-calico.conflist": good}, programs: broken("ptp", "no form")},
		"a program without permission":   {files: map[string]string{"05-a.conflist": list("first", "ptp"), "10-calico.conflist": good}, programs: broken("ptp", "no permission")},
		"our program is empty":           {files: map[string]string{"10-calico.conflist": good}, programs: broken("capture-cni", "empty")},
		"our list in front of another":   {files: map[string]string{"00-a.conflist": list("first", "cilium-cni"), "10-calico.conflist": good}, programs: all},
	} {
		for runtime := range oracles {
			for _, what := range disagree(t, test, runtime) {
				t.Errorf("%s, on %s: %s", name, runtime, what)
			}
		}
	}
}

// TestProgramsGoMissing has CRI-O skip the list with the entry, once our program or the one of
// its owner is gone: that is a fault, and it is over once the program is back.
func TestProgramsGoMissing(t *testing.T) {
	t.Parallel()
	for _, mode := range []report.Mode{report.Insert, report.DropIn, report.Owned} {
		n := makeNode(t, directory{files: map[string]string{"05-a.conflist": list("first", "ptp"), "10-calico.conflist": list("second", "calico")}, programs: all})
		a, binDir := agent{"cri-o", n}, n.bins[0]
		lab.Check(t, a.place(mode))
		for _, program := range []string{"capture-cni", "ptp"} {
			lab.Check(t, os.Rename(filepath.Join(binDir, program), filepath.Join(binDir, "gone")))
			if fault := a.fault(mode); fault == nil || loadCRIO(n, n.bins).calls() {
				t.Errorf("%s without %s: %v", mode, program, fault)
			}
			if fault := a.place(mode); (fault == nil) != (program == "ptp") || fault != nil && !strings.Contains(fault.Error(), "names capture-cni, whose programs are missing or broken") {
				t.Errorf("%s, placed without %s: %v", mode, program, fault)
			}
			lab.Check(t, os.Rename(filepath.Join(binDir, "gone"), filepath.Join(binDir, program)))
			lab.Check(t, a.place(mode))
			if !loadCRIO(n, n.bins).calls() {
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
		for _, mode := range []report.Mode{report.Insert, report.DropIn, report.Owned} {
			for act, after := range acts {
				for step := range 4 {
					n := makeNode(t, directory{files: map[string]string{"10-a.conflist": good}, programs: all})
					a, netDir := agent{runtime, n}, n.netDir
					steps := []func(){func() { _ = a.place(mode) }, func() { _ = a.place(mode) }, func() { _ = a.remove() }, func() {}}
					for i, do := range steps {
						if i == step {
							overwrite(t, netDir, after)
						}
						if do(); a.fault(mode) == nil && !load(n, n.bins).calls() {
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
	n := makeNode(t, directory{files: map[string]string{"10-calico.conflist": list("second", "calico")}, programs: all})
	a, netDir := agent{"cri-o", n}, n.netDir
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
	for range 200 {
		_ = a.place(report.Owned)
		if text, err := os.ReadFile(filepath.Join(netDir, conflist.OwnedName)); err == nil && !strings.HasSuffix(string(text), "}\n") {
			t.Fatalf("torn: %s", text)
		}
	}
	close(stop)
	lab.Check(t, <-done)
	lab.Check(t, errors.Join(a.place(report.Owned), a.remove()))
	if diff := cmp.Diff(map[string]string{"05-a.conflist": list("first", "ptp"), "10-calico.conflist": list("second", "calico")}, tree(t, netDir)); diff != "" {
		t.Error(diff)
	}
}
