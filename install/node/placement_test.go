// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

const (
	ptpList     = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "ptp"}]}`
	bridgeList  = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "bridge"}]}`
	ptpConf     = `{"cniVersion": "1.0.0", "name": "podnet", "type": "ptp"}`
	bridgeConf  = `{"cniVersion": "1.0.0", "name": "podnet", "type": "bridge"}`
	inlinedList = `{"cniVersion": "1.1.0", "name": "podnet", "loadOnlyInlinedPlugins": true, "plugins": [{"type": "ptp"}]}`
)

var (
	oldEntry = []byte(`{"type":"capture-cni","kubeconfig":"/var/lib/capture-cni/kubeconfig"}`)
	newEntry = []byte(`{"type":"capture-cni","kubeconfig":"/run/capture-cni/kubeconfig"}`)
)

// configDirectory is a runtime's directory with these files.
func configDirectory(t *testing.T, files map[string]string) *host.Dir {
	t.Helper()
	net, err := host.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = net.Close() })
	for name, content := range files {
		writeConfig(t, net, name, content)
	}
	return net
}

func writeConfig(t *testing.T, net *host.Dir, name, content string) {
	t.Helper()
	path := filepath.Join(net.Path(), name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// filesIn returns all files below the directory, and empty directories with a slash.
func filesIn(t *testing.T, net *host.Dir) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(net.Path(), func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(net.Path(), path)
		if err != nil || entry.IsDir() {
			if children, readErr := os.ReadDir(path); readErr == nil && len(children) == 0 && name != "." {
				found[name+"/"] = ""
			}
			return err
		}
		content, err := os.ReadFile(path)
		found[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func expectFiles(t *testing.T, net *host.Dir, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, filesIn(t, net)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// expectState asks a placement what it sees.
func expectState(t *testing.T, p placement, net *host.Dir, entry []byte, wantPlaced, wantFound bool) {
	t.Helper()
	if fault := p.fault(net, entry); (fault == nil) != wantPlaced {
		t.Errorf("fault is %v, want the entry in place: %v", fault, wantPlaced)
	}
	if found, err := p.found(net); err != nil || found != wantFound {
		t.Errorf("found %v, %v; want %v", found, err, wantFound)
	}
}

// expectUnwritten fails if a call writes a file anew.
func expectUnwritten(t *testing.T, net *host.Dir, call func() error) {
	t.Helper()
	stat := func() map[string]fs.FileInfo {
		infos := map[string]fs.FileInfo{}
		for name := range filesIn(t, net) {
			infos[name], _ = os.Stat(filepath.Join(net.Path(), name))
		}
		return infos
	}
	before := stat()
	if err := call(); err != nil {
		t.Error(err)
	}
	if after := stat(); !maps.EqualFunc(before, after, os.SameFile) {
		t.Errorf("written anew: there was %v, there is %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
}

// placementCases are what each mode does with each kind of primary.
var placementCases = map[string]struct {
	mode   Mode
	before map[string]string
	placed map[string]string // where the entry is afterwards
}{
	"insert into a list":   {Insert, map[string]string{"10-ptp.conflist": ptpList}, map[string]string{"10-ptp.conflist": "podnet"}},
	"insert behind a conf": {Insert, map[string]string{"10-bridge.conf": bridgeConf}, map[string]string{"10-bridge.conflist": "podnet"}},
	"insert behind a json": {Insert, map[string]string{"10-bridge.json": bridgeConf}, map[string]string{"10-bridge.conflist": "podnet"}},
	"insert, not into files that no runtime loads": {
		Insert,
		map[string]string{"05-bridge.conf.bak": bridgeConf, "06-bridge": bridgeConf, "10-ptp.conflist": ptpList},
		map[string]string{"10-ptp.conflist": "podnet"},
	},
	"insert into the first": {Insert, map[string]string{"10-ptp.conflist": ptpList, "20-bridge.conflist": bridgeList}, map[string]string{"10-ptp.conflist": "podnet"}},
	"insert, not into loopback": {Insert, map[string]string{
		"05-lo.conf": `{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}`, "10-ptp.conflist": ptpList,
	}, map[string]string{"10-ptp.conflist": "podnet"}},
	"dropin":                    {DropIn, map[string]string{"10-ptp.conflist": ptpList}, map[string]string{"podnet/capture-cni.conf": ""}},
	"dropin among others":       {DropIn, map[string]string{"10-ptp.conflist": ptpList, "podnet/other.conf": "{}"}, map[string]string{"podnet/capture-cni.conf": ""}},
	"owned":                     {Owned, map[string]string{"10-ptp.conflist": ptpList}, map[string]string{ownedName: "podnet"}},
	"owned, of a conf":          {Owned, map[string]string{"10-bridge.conf": bridgeConf}, map[string]string{ownedName: "podnet"}},
	"owned, without istio-cni":  {Owned, map[string]string{"10-ptp.conflist": strings.Replace(ptpList, `}]`, `}, {"type": "istio-cni"}]`, 1)}, map[string]string{ownedName: "podnet"}},
	"multus":                    {Multus, map[string]string{}, map[string]string{"capture-cni.conf": "capture-cni"}},
	"multus-chain":              {MultusChain, map[string]string{}, map[string]string{chainedName: ""}},
	"multus-chain among others": {MultusChain, map[string]string{"10-tuning.conf": `{"type": "tuning"}`}, map[string]string{chainedName: ""}},
	"multus among others":       {Multus, map[string]string{"storage.conf": "{}"}, map[string]string{"capture-cni.conf": "capture-cni"}},
}

// TestPlacements places an entry, another one, and removes it: nothing of it is
// left, and what others wrote is as it was.
func TestPlacements(t *testing.T) {
	t.Parallel()
	for name, test := range placementCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net, p := configDirectory(t, test.before), placements[test.mode]
			expectState(t, p, net, oldEntry, false, false)
			expectUnwritten(t, net, func() error { return p.remove(net) })
			for _, entry := range [][]byte{oldEntry, newEntry} {
				if err := p.place(net, entry); err != nil {
					t.Fatal(err)
				}
				expectState(t, p, net, entry, true, true)
				expectUnwritten(t, net, func() error { return p.place(net, entry) })
				files := filesIn(t, net)
				for file, network := range test.placed {
					if !holds(t, files[file], network, entry) {
						t.Errorf("%s does not hold the entry %s:\n%s", file, entry, files[file])
					}
				}
				for file, content := range files {
					if _, ours := test.placed[file]; !ours && content != test.before[strings.TrimSuffix(file, originalSuffix)] {
						t.Errorf("%s is not as it was:\n%s", file, content)
					}
				}
			}
			expectState(t, p, net, oldEntry, false, true)
			if err := p.remove(net); err != nil {
				t.Fatal(err)
			}
			expectFiles(t, net, test.before)
			expectState(t, p, net, newEntry, false, false)
		})
	}
}

// TestInterruptedRemoval removes an entry after a removal that ended between its two steps.
func TestInterruptedRemoval(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"10-bridge.conf", "10-bridge.json"} {
		before := map[string]string{name: bridgeConf}
		net, p := configDirectory(t, before), placements[Insert]
		if err := errors.Join(p.place(net, oldEntry), net.Rename(name+originalSuffix, name), p.remove(net)); err != nil {
			t.Error(err)
		}
		expectFiles(t, net, before)
	}
}

// holds reports whether a file is the entry alone, or as a list or configuration
// of the network's name.
func holds(t *testing.T, text, network string, entry []byte) bool {
	t.Helper()
	if network == "" {
		return text == string(indented(entry))
	}
	if !strings.Contains(text, `"plugins"`) {
		return text == "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \""+network+"\","+string(indented(entry))[1:]
	}
	list, err := conflist.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list.Name == network && list.Has(entry) && list.Others() == 1 && !slices.ContainsFunc(list.Plugins, conflist.Plugin.OtherMesh)
}

// TestPlacementRefused says why an entry can't be placed, and changes nothing.
func TestPlacementRefused(t *testing.T) {
	t.Parallel()
	half := ptpList[:len(ptpList)/2]
	for name, test := range map[string]struct {
		mode        Mode
		files       map[string]string
		waits       bool // it passes by itself
		errContains string
	}{
		"insert, nothing there":        {Insert, map[string]string{}, true, "no network configuration in"},
		"dropin, nothing there":        {DropIn, map[string]string{}, true, "no network configuration in"},
		"owned, nothing there":         {Owned, map[string]string{}, true, "no network configuration in"},
		"insert, half a list":          {Insert, map[string]string{"10-ptp.conflist": half, "20-bridge.conflist": bridgeList}, true, "10-ptp.conflist"},
		"dropin, half a list":          {DropIn, map[string]string{"10-ptp.conflist": half}, true, "10-ptp.conflist"},
		"owned, half a list":           {Owned, map[string]string{"10-ptp.conflist": half}, true, "10-ptp.conflist"},
		"dropin, a conf":               {DropIn, map[string]string{"10-bridge.conf": bridgeConf}, false, `use mode "insert"`},
		"dropin, inlined plugins only": {DropIn, map[string]string{"10-ptp.conflist": inlinedList}, false, `use mode "insert"`},
		"dropin, a link elsewhere":     {DropIn, map[string]string{"10-ptp.conflist": strings.Replace(ptpList, "podnet", "..", 1)}, false, "escapes"},
		"insert, no chained plugins":   {Insert, map[string]string{"10-old.conflist": `{"cniVersion":"0.2.0","name":"old","plugins":[{"type":"bridge"}]}`}, false, "has cniVersion 0.2.0"},
		"insert, no version":           {Insert, map[string]string{"10-old.conflist": `{"name":"old","plugins":[{"type":"bridge"}]}`}, false, "has no cniVersion"},
		"owned, a list before ours":    {Owned, map[string]string{"00-a.conflist": ptpList}, false, "00-a.conflist sorts before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net, p := configDirectory(t, test.files), placements[test.mode]
			for what, err := range map[string]error{"fault": p.fault(net, oldEntry), "place": p.place(net, oldEntry)} {
				if err == nil || !strings.Contains(err.Error(), test.errContains) || isWaiting(err) != test.waits {
					t.Errorf("%s: got %v, want %q, waiting: %v", what, err, test.errContains, test.waits)
				}
			}
			expectFiles(t, net, test.files)
		})
	}
}

// TestInsertKeepsWhatCameMeanwhile refuses to write over what is not what was read.
func TestInsertKeepsWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	net := configDirectory(t, map[string]string{"10-ptp.conflist": bridgeList})
	if err := checkUnchanged(net, "10-ptp.conflist", []byte(bridgeList))(""); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	if err := checkUnchanged(net, "10-ptp.conflist", []byte(ptpList))(""); !isWaiting(err) {
		t.Errorf("written meanwhile: got %v, want it to wait", err)
	}
	if err := checkUnchanged(net, "20-ptp.conflist", []byte(ptpList))(""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed meanwhile: got %v", err)
	}
}
