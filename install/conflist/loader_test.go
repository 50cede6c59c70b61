// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

const (
	ciliumList = `{"cniVersion": "0.3.1", "name": "cilium", "plugins": [{"type": "cilium-cni"}]}`
	calicoList = `{"cniVersion": "0.3.1", "name": "k8s-pod-network", "plugins": [{"type": "calico"}]}`

	loopbackConf = `{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}`
)

// crio is the directory of CRI-O, which has these programs and others that the agent may not see.
func crio(t *testing.T, files map[string]string, seesAll bool, programs ...string) Net {
	t.Helper()
	bin := t.TempDir()
	for _, program := range programs {
		if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	net := newNet(t, files)
	net.Loader = Loader{Runtime: report.Runtime{Name: "cri-o", Version: "1.34.0"}, BinDirs: []string{bin}, SeesAll: seesAll, Most: 1}
	return net
}

// TestCRIO places the entry where CRI-O would find it, or says why it would not.
func TestCRIO(t *testing.T) {
	t.Parallel()
	both := map[string]string{"05-cilium.conflist": ciliumList, "10-calico.conflist": calicoList}
	ours := map[string]string{"10-calico.conflist": strings.Replace(calicoList, "}]", "}, "+string(OldEntry)+"]", 1)}
	twice := map[string]string{"05-cilium.conflist": ciliumList, "06-again.conflist": ciliumList, "10-calico.conflist": calicoList}
	loopback := map[string]string{"05-cilium.conflist": ciliumList, "06-lo.conf": loopbackConf, "10-calico.conflist": calicoList}
	for name, test := range map[string]struct {
		net   Net
		mode  report.Mode
		holds []string // files with the entry afterwards
		fault string
	}{
		"the first has no program":         {crio(t, both, true, "calico", "capture-cni"), report.Insert, []string{"10-calico.conflist"}, ""},
		"the first may have no program":    {crio(t, both, false, "calico", "capture-cni"), report.Insert, []string{"05-cilium.conflist", "10-calico.conflist"}, ""},
		"owned may have no program":        {crio(t, both, false, "calico", "capture-cni"), report.Owned, []string{OwnedName}, "may load 10-calico.conflist, which has no entry"},
		"the first is empty":               {crio(t, map[string]string{"05-cilium.conflist": "", "10-calico.conflist": calicoList}, true, "calico", "capture-cni"), report.DropIn, []string{"k8s-pod-network/capture-cni.conf"}, ""},
		"our program is missing":           {crio(t, both, true, "calico", "cilium-cni"), report.Owned, []string{OwnedName}, "names capture-cni, whose programs are missing or broken"},
		"our program may be missing":       {crio(t, both, false, "calico", "cilium-cni"), report.Owned, []string{OwnedName}, "names capture-cni, whose programs are missing or broken"},
		"ours is missing, with an entry":   {crio(t, ours, true, "calico"), report.Insert, []string{"10-calico.conflist"}, "the runtime loads no list in"},
		"both have programs":               {crio(t, both, false, "cilium-cni", "calico", "capture-cni"), report.Insert, []string{"05-cilium.conflist"}, ""},
		"skipped like the first":           {crio(t, twice, false, "capture-cni", "calico"), report.Insert, []string{"05-cilium.conflist", "10-calico.conflist"}, ""},
		"loopback is no second choice":     {crio(t, loopback, false, "capture-cni", "loopback", "calico"), report.Insert, []string{"05-cilium.conflist", "10-calico.conflist"}, ""},
		"loopback may have no program":     {crio(t, map[string]string{"05-lo.conf": loopbackConf, "10-calico.conflist": calicoList}, false, "capture-cni", "calico"), report.Insert, []string{"10-calico.conflist"}, ""},
		"a program of our list is missing": {crio(t, both, true, "capture-cni"), report.Insert, nil, "05-cilium.conflist names cilium-cni, whose programs are missing or broken"},
	} {
		_ = In(test.mode).Place(test.net, OldEntry) // Fault says why not
		if fault := Fault(test.net, test.mode, OldEntry); (fault == nil) != (test.fault == "") || fault != nil && (!strings.Contains(fault.Error(), test.fault) || strings.Contains(fault.Error(), "CRI-O skips") == strings.Contains(test.fault, "no entry")) {
			t.Errorf("%s: fault %v, want %q", name, fault, test.fault)
		}
		files := machine.Files(t, test.net.Dir)
		maps.DeleteFunc(files, func(_, text string) bool { return !strings.Contains(text, "capture-cni") })
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, test.holds) {
			t.Errorf("%s: the entry is in %q, want %q", name, got, test.holds)
		}
	}
	net := crio(t, map[string]string{"04-empty.conflist": "", "05-cilium.conflist": ciliumList, "10-calico.conflist": calicoList}, false, "calico", "capture-cni")
	_ = In(report.Owned).Place(net, OldEntry)
	if fault := net.Called(); fault == nil || IsWaiting(fault) || !strings.Contains(fault.Error(), "has no entry") || !strings.Contains(fault.Error(), "CRI-O skips") {
		t.Errorf("owned may have no program, next to an empty list: the agent waits for %v", fault)
	}
	if _, err := FindPrimary(crio(t, map[string]string{"06-lo.conf": loopbackConf}, true, "loopback")); err == nil || !strings.Contains(err.Error(), "has only the plugin loopback") {
		t.Errorf("loopback alone: %v", err)
	}
	net = crio(t, both, true, "calico", "cilium-cni")
	net.Network = "k8s-pod-network"
	if p, err := FindPrimary(net); err != nil || p.File != "10-calico.conflist" {
		t.Errorf("with a default network: %s, %v", p.File, err)
	}
}

// TestManyLists follows containerd's max_conf_num: all of these lists are loaded, or none.
func TestManyLists(t *testing.T) {
	t.Parallel()
	for last, loads := range map[string]bool{calicoList: true, "{": false} {
		net := newNet(t, map[string]string{"05-lo.conf": loopbackConf, "lo/broken.conf": "{}", "10-cilium.conflist": ciliumList, "20-last.conflist": last})
		net.Most = 0
		if p, err := FindPrimary(net); (err == nil) != loads || loads && p.File != "10-cilium.conflist" {
			t.Errorf("%s: %s, %v", last, p.File, err)
		}
		net.Most = 2
		if p, err := FindPrimary(net); err != nil || p.File != "10-cilium.conflist" {
			t.Errorf("two lists: %s, %v", p.File, err)
		}
	}
}

// TestLinks leaves a link where it is, and says where one leads that the agent does not follow.
func TestLinks(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"ptp.real": "10-ptp.conflist is a link to ptp.real, to which mode insert can't add the entry: use mode \"owned\"",
		"/etc/ptp": "10-ptp.conflist is a link to /etc/ptp, which the agent does not follow: replace the link by a copy of that file",
		"../ptp":   "is a link to ../ptp, which the agent does not follow",
		"none":     "10-ptp.conflist in ",
		".":        "not a regular file",
	} {
		net := newNet(t, map[string]string{"ptp.real": machine.PtpList})
		path := filepath.Join(net.Path(), "10-ptp.conflist")
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{"fault": Fault(net, report.Insert, OldEntry), "place": In(report.Insert).Place(net, OldEntry)} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of a link to %s: %v, want %q", what, target, err, want)
			}
		}
		if got, err := os.Readlink(path); err != nil || got != target {
			t.Errorf("the link to %s leads to %s, %v", target, got, err)
		}
		if placed := In(report.Owned).Place(net, OldEntry); (placed == nil) != (target == "ptp.real") {
			t.Errorf("owned of a link to %s: %v", target, placed)
		}
		machine.Write(t, net.Dir, "ptp.real", machine.BothList)
		if err := In(report.Insert).Remove(net); err != nil {
			t.Errorf("removal beside a link to %s: %v", target, err)
		}
		if got, err := os.Readlink(path); err != nil || got != target {
			t.Errorf("after the removal, the link to %s leads to %s, %v", target, got, err)
		}
		net.Loader = Loader{Runtime: report.Runtime{Name: "cri-o", Version: "1.34.0"}, SeesAll: true}
		if _, err := FindPrimary(net); IsWaiting(err) == strings.Contains(target, "/") || !strings.Contains(err.Error(), "10-ptp.conflist") {
			t.Errorf("CRI-O has a link to %s: %v", target, err)
		}
	}
}

// TestPipe refuses what is no file, and does not wait for it.
func TestPipe(t *testing.T) {
	t.Parallel()
	net := newNet(t, nil)
	if err := syscall.Mkfifo(filepath.Join(net.Path(), "10-ptp.conflist"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := FindPrimary(net); err == nil || IsWaiting(err) || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}

// TestOwner names the list's first plugin that is not ours, as the one who writes the list.
func TestOwner(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		machine.PtpList: "ptp",
		strings.Replace(machine.PtpList, "[{", "["+string(OldEntry)+", {", 1):    "ptp",
		strings.Replace(machine.PtpList, `{"type": "ptp"}`, string(OldEntry), 1): "unknown",
	} {
		if p, _ := FindPrimary(newNet(t, map[string]string{"10-a.conflist": text})); p.Owner() != want {
			t.Errorf("%s of %s, want %s", p.Owner(), text, want)
		}
	}
}

// TestWithoutDropIn has the mode of auto if the runtime loads no drop-in, also next to files that
// this runtime does not load.
func TestWithoutDropIn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		want  report.Mode
		fault string
	}{
		"a list":             {map[string]string{"10-ptp.conflist": machine.PtpList}, report.Insert, "lacks an up-to-date capture-cni entry"},
		"a conf":             {map[string]string{"10-ptp.conf": ptpConf}, report.Owned, OwnedName + ": no such file"},
		"an original":        {map[string]string{"10-ptp.conflist": machine.PtpList, "20-b.conf" + originalSuffix: "{}"}, report.Owned, OwnedName + ": no such file"},
		"a drop-in, ignored": {map[string]string{"10-ptp.conflist": machine.PtpList, "podnet/broken.conf": "{}"}, report.Insert, "lacks an up-to-date"},
	} {
		net := newNet(t, test.files)
		net.Runtime.Version = "2.0.7"
		if err := os.Symlink("/elsewhere", filepath.Join(net.Path(), "90-later.conflist")); err != nil {
			t.Fatal(err)
		}
		if got := WithoutDropIn(net); got != test.want {
			t.Errorf("%s: mode %s", name, got)
		}
		if fault := Fault(net, report.Auto, OldEntry); fault == nil || !strings.Contains(fault.Error(), test.fault) {
			t.Errorf("%s: %v, want %q", name, fault, test.fault)
		}
		if test.want == report.Owned && strings.Contains(name, "original") { // an earlier release's
			if err := In(report.Insert).Place(net, OldEntry); err != nil || Fault(net, report.Auto, OldEntry) != nil {
				t.Errorf("%s, with the entry: %v, %v", name, err, Fault(net, report.Auto, OldEntry))
			}
		}
	}
}
