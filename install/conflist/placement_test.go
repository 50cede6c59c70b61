// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

const (
	bridgeList  = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "bridge"}]}`
	ptpConf     = `{"cniVersion": "1.0.0", "name": "podnet", "type": "ptp"}`
	inlinedList = `{"cniVersion": "1.1.0", "name": "podnet", "loadOnlyInlinedPlugins": true, "plugins": [{"type": "ptp"}]}`
)

var (
	OldEntry = []byte(`{"type":"capture-cni","kubeconfig":"/var/lib/capture-cni/kubeconfig"}`)
	newEntry = []byte(`{"type":"capture-cni","kubeconfig":"/run/capture-cni/kubeconfig"}`)
)

// newNet is the directory of containerd.
func newNet(t *testing.T, files map[string]string) Net {
	t.Helper()
	return Net{Dir: machine.NetDir(t, files), Loader: Loader{Runtime: report.Runtime{Name: "containerd", Version: "2.1.0"}, Most: 1}}
}

// expectState asks a placement what it sees.
func expectState(t *testing.T, p Placement, net Net, entry []byte, wantPlaced, wantFound bool) {
	t.Helper()
	if fault := p.Fault(net, entry); (fault == nil) != wantPlaced {
		t.Errorf("fault is %v, want the entry in place: %v", fault, wantPlaced)
	}
	for what, find := range map[string]func(Net) (bool, error){"it": p.Found, "any": IsPlaced} {
		if found, err := find(net); err != nil || found != wantFound {
			t.Errorf("found %s: %v, %v; want %v", what, found, err, wantFound)
		}
	}
}

// expectUnwritten fails if a call writes a file anew.
func expectUnwritten(t *testing.T, net Net, call func() error) {
	t.Helper()
	stat := func() map[string]fs.FileInfo {
		infos := map[string]fs.FileInfo{}
		for name := range machine.Files(t, net.Dir) {
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
	mode   report.Mode
	before map[string]string
	placed map[string]string // where the entry is afterwards
}{
	"insert into a list": {report.Insert, map[string]string{"10-ptp.conflist": machine.PtpList}, map[string]string{"10-ptp.conflist": "podnet"}},
	"insert, not into files that no runtime loads": {
		report.Insert,
		map[string]string{"05-bridge.conf.bak": machine.BridgeConf, "06-bridge": machine.BridgeConf, "10-ptp.conflist": machine.PtpList},
		map[string]string{"10-ptp.conflist": "podnet"},
	},
	"insert into the first":     {report.Insert, map[string]string{"10-ptp.conflist": machine.PtpList, "20-bridge.conflist": bridgeList}, map[string]string{"10-ptp.conflist": "podnet"}},
	"dropin":                    {report.DropIn, map[string]string{"10-ptp.conflist": machine.PtpList}, map[string]string{"podnet/capture-cni.conf": ""}},
	"dropin among others":       {report.DropIn, map[string]string{"10-ptp.conflist": machine.PtpList, "podnet/other.conf": `{"type": "tuning"}`}, map[string]string{"podnet/capture-cni.conf": ""}},
	"owned":                     {report.Owned, map[string]string{"10-ptp.conflist": machine.PtpList}, map[string]string{OwnedName: "podnet"}},
	"owned, of a conf":          {report.Owned, map[string]string{"10-bridge.conf": machine.BridgeConf}, map[string]string{OwnedName: "podnet"}},
	"insert, inlined":           {report.Insert, map[string]string{"10-ptp.conflist": inlinedList, "podnet/broken.conf": "{}"}, map[string]string{"10-ptp.conflist": "podnet"}},
	"dropin next to a note":     {report.DropIn, map[string]string{"10-ptp.conflist": machine.PtpList, "podnet/note.txt": "{}"}, map[string]string{"podnet/capture-cni.conf": ""}},
	"owned, without istio-cni":  {report.Owned, map[string]string{"10-ptp.conflist": strings.Replace(machine.PtpList, `}]`, `}, {"type": "istio-cni"}]`, 1)}, map[string]string{OwnedName: "podnet"}},
	"multus":                    {report.Multus, map[string]string{}, map[string]string{"capture-cni.conf": "capture-cni"}},
	"multus-chain":              {report.MultusChain, map[string]string{}, map[string]string{ChainedName: ""}},
	"multus-chain among others": {report.MultusChain, map[string]string{"10-tuning.conf": `{"type": "tuning"}`}, map[string]string{ChainedName: ""}},
	"multus among others":       {report.Multus, map[string]string{"storage.conf": "{}"}, map[string]string{"capture-cni.conf": "capture-cni"}},
}

// TestPlacements places an entry, another one, and removes it: nothing of it is
// left, and what others wrote is as it was.
func TestPlacements(t *testing.T) {
	t.Parallel()
	for name, test := range placementCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net, p := newNet(t, test.before), In(test.mode)
			expectState(t, p, net, OldEntry, false, false)
			if fault := p.Fault(net, OldEntry); test.mode != report.Insert && !errors.Is(fault, fs.ErrNotExist) {
				t.Errorf("fault is %v, want that there is no entry", fault)
			}
			if primary, err := FindPrimary(net); !test.mode.UnderMultus() && (err != nil || primary.Accepts(test.mode) != nil) {
				t.Errorf("the list is not accepted: %v, %v", err, primary.Accepts(test.mode))
			}
			expectUnwritten(t, net, func() error { return p.Remove(net) })
			for _, entry := range [][]byte{OldEntry, newEntry} {
				if err := p.Place(net, entry); err != nil {
					t.Fatal(err)
				}
				expectState(t, p, net, entry, true, true)
				for _, mode := range []report.Mode{test.mode, report.Auto} {
					if fault := Fault(net, mode, entry); fault != nil && (mode != report.Auto || !test.mode.UnderMultus()) {
						t.Errorf("by the runtime's choice, mode %s: %v", mode, fault)
					}
				}
				expectUnwritten(t, net, func() error { return RemoveExcept(net, test.mode) })
				expectUnwritten(t, net, func() error { return p.Place(net, entry) })
				files := machine.Files(t, net.Dir)
				for file, network := range test.placed {
					if !holds(t, files[file], network, entry) {
						t.Errorf("%s does not hold the entry %s:\n%s", file, entry, files[file])
					}
				}
				for file, content := range files {
					if _, ours := test.placed[file]; !ours && content != test.before[file] {
						t.Errorf("%s is not as it was:\n%s", file, content)
					}
				}
			}
			expectState(t, p, net, OldEntry, false, true)
			if err := RemoveExcept(net, ""); err != nil {
				t.Fatal(err)
			}
			machine.ExpectFiles(t, net.Dir, test.before)
			expectState(t, p, net, newEntry, false, false)
		})
	}
}

// holds reports whether a file is the entry alone, or as a list or configuration
// of the network's name.
func holds(t *testing.T, text, network string, entry []byte) bool {
	t.Helper()
	if network == "" {
		return text == string(Indented(entry))
	}
	if !strings.Contains(text, `"plugins"`) {
		return text == "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \""+network+"\","+string(Indented(entry))[1:]
	}
	list, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list.Name == network && list.Has(entry) && len(list.Plugins) == 2 && !slices.ContainsFunc(list.Plugins, Plugin.OtherMesh)
}

// TestPlacementRefused says why an entry can't be placed, and changes nothing.
func TestPlacementRefused(t *testing.T) {
	t.Parallel()
	half := machine.PtpList[:len(machine.PtpList)/2]
	madeOfConf := map[string]string{"10-b.conf" + originalSuffix: machine.BridgeConf, "10-b.conflist": strings.Replace(bridgeList, "}]", "}, "+string(OldEntry)+"]", 1)}
	madeFault := func(mode string) string {
		return "10-b.conflist was made by an earlier release from the plain configuration 10-b.conf, to which mode " + mode +
			` can't add the entry: use mode "owned", which leaves the file alone`
	}
	for name, test := range map[string]struct {
		mode        report.Mode
		files       map[string]string
		waits       bool // it passes by itself
		errContains string
	}{
		"insert, nothing there":        {report.Insert, map[string]string{}, true, "no network configuration in"},
		"dropin, nothing there":        {report.DropIn, map[string]string{}, true, "no network configuration in"},
		"owned, nothing there":         {report.Owned, map[string]string{}, true, "no network configuration in"},
		"insert, half a list":          {report.Insert, map[string]string{"10-ptp.conflist": half, "20-bridge.conflist": bridgeList}, true, "10-ptp.conflist"},
		"dropin, half a list":          {report.DropIn, map[string]string{"10-ptp.conflist": half}, true, "10-ptp.conflist"},
		"owned, half a list":           {report.Owned, map[string]string{"10-ptp.conflist": half}, true, "10-ptp.conflist"},
		"dropin, a conf":               {report.DropIn, map[string]string{"10-bridge.conf": machine.BridgeConf}, false, `10-bridge.conf is a plain configuration, to which mode dropin can't add the entry: use mode "owned"`},
		"dropin, a broken neighbour":   {report.DropIn, map[string]string{"10-ptp.conflist": machine.PtpList, "podnet/other.conf": "{}"}, true, "/podnet/other.conf is no plugin's configuration: correct or delete that file"},
		"insert, a conf":               {report.Insert, map[string]string{"10-bridge.conf": machine.BridgeConf}, false, `use mode "owned"`},
		"insert, a json":               {report.Insert, map[string]string{"10-bridge.json": machine.BridgeConf}, false, `use mode "owned"`},
		"insert, a conf before a list": {report.Insert, map[string]string{"05-cilium.conf": machine.BridgeConf, "05-cilium.conflist": bridgeList}, false, `use mode "owned"`},
		"insert, made of a conf":       {report.Insert, madeOfConf, false, madeFault("insert")},
		"insert, made of a json":       {report.Insert, map[string]string{"10-b.json" + originalSuffix: "{}", "10-b.conflist": bridgeList}, false, "the plain configuration 10-b.json, to which"},
		"dropin, made of a conf":       {report.DropIn, madeOfConf, false, madeFault("dropin")},
		"insert, behind loopback":      {report.Insert, map[string]string{"05-lo.conf": `{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}`, "10-ptp.conflist": machine.PtpList}, true, "05-lo.conf, which the runtime loads, has only the plugin loopback"},
		"insert, half a conf":          {report.Insert, map[string]string{"10-bridge.conf": machine.BridgeConf[:40]}, true, "10-bridge.conf is not complete"},
		"insert, plugins twice":        {report.Insert, map[string]string{"10-ptp.conflist": strings.Replace(machine.PtpList, `"plugins"`, `"plugins": 5, "plugins"`, 1)}, false, "the key plugins occurs twice"},
		"insert, a file for drop-ins":  {report.Insert, map[string]string{"10-ptp.conflist": machine.PtpList, "podnet": ""}, true, "10-ptp.conflist needs a directory"},
		"dropin, our entry alone":      {report.DropIn, map[string]string{"10-ptp.conflist": strings.Replace(machine.PtpList, `"ptp"`, `"capture-cni"`, 1)}, false, "the list has no interface plugin"},
		"dropin, inlined plugins only": {report.DropIn, map[string]string{"10-ptp.conflist": inlinedList}, false, `use mode "insert"`},
		"dropin, a link elsewhere":     {report.DropIn, map[string]string{"10-ptp.conflist": strings.Replace(machine.PtpList, "podnet", "..", 1)}, false, "escapes"},
		"insert, no chained plugins":   {report.Insert, map[string]string{"10-old.conflist": `{"cniVersion":"0.2.0","name":"old","plugins":[{"type":"bridge"}]}`}, false, "has cniVersion 0.2.0"},
		"insert, no version":           {report.Insert, map[string]string{"10-old.conflist": `{"name":"old","plugins":[{"type":"bridge"}]}`}, false, "has no cniVersion"},
		"insert, no plugin":            {report.Insert, map[string]string{"10-ptp.conflist": `{"cniVersion": "1.1.0", "name": "podnet"}`}, true, "10-ptp.conflist has no plugin"},
		"owned, a list before ours":    {report.Owned, map[string]string{"00-a.conflist": machine.PtpList}, false, "00-a.conflist sorts before"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net, p := newNet(t, test.files), In(test.mode)
			for what, err := range map[string]error{"fault": p.Fault(net, OldEntry), "place": p.Place(net, OldEntry)} {
				if err == nil || !strings.Contains(err.Error(), test.errContains) || IsWaiting(err) != test.waits {
					t.Errorf("%s: got %v, want %q, waiting: %v", what, err, test.errContains, test.waits)
				}
			}
			machine.ExpectFiles(t, net.Dir, test.files)
		})
	}
}

// TestFaultyDirectory returns the error of a directory that can't be read, in each mode.
func TestFaultyDirectory(t *testing.T) {
	t.Parallel()
	net := newNet(t, map[string]string{"10-ptp.conflist": machine.PtpList})
	if err := net.Close(); err != nil {
		t.Fatal(err)
	}
	for mode, p := range placements {
		_, foundErr := p.Found(net)
		for what, err := range map[string]error{"fault": p.Fault(net, OldEntry), "place": p.Place(net, OldEntry), "found": foundErr, "remove": p.Remove(net)} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s of mode %s: %v", what, mode, err)
			}
		}
	}
	_, placedErr := IsPlaced(net)
	for what, err := range map[string]error{"placed": placedErr, "called": net.Called(), "chain": ChainFault(net)} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestInsertKeepsWhatCameMeanwhile refuses to write over what is not what was read.
func TestInsertKeepsWhatCameMeanwhile(t *testing.T) {
	t.Parallel()
	net := newNet(t, map[string]string{"10-ptp.conflist": bridgeList})
	if err := checkUnchanged(net, "10-ptp.conflist", []byte(bridgeList))(""); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	if err := checkUnchanged(net, "10-ptp.conflist", []byte(machine.PtpList))(""); !IsWaiting(err) {
		t.Errorf("written meanwhile: got %v, want it to wait", err)
	}
	if err := checkUnchanged(net, "20-ptp.conflist", []byte(machine.PtpList))(""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed meanwhile: got %v", err)
	}
}
