// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

const primaryFile = "10-ptp.conflist"

// listNode is a node that consists of a runtime's directory, with an agent that has
// credentials.
func listNode(t *testing.T, files map[string]string, mode report.Mode, besideIstioCNI bool) (*Node, *host.Dir, *bytes.Buffer) {
	t.Helper()
	net := machine.NetDir(t, files)
	entry, err := conflist.ParseEntry(nil, mode, "/var/lib/capture-cni", "/run/capture-cni")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, program := range []string{"capture-cni", "ptp", "bridge"} {
		lab.Check(t, lab.WriteProgram(filepath.Join(bin, program), []byte("#!/bin/sh\n")))
	}
	var log bytes.Buffer
	n := New(Settings{Root: "/", Mode: mode, NetDir: net.Path(), BinDirs: []string{bin}, Entry: entry, BesideIstioCNI: besideIstioCNI}, nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
	n.Credentials.Kubeconfig = "/var/lib/capture-cni/kubeconfig"
	return n, net, &log
}

// TestRefusedBesideIstioCNI leaves every file as it is, in each mode, and says why and
// what to do next; verify says the same.
func TestRefusedBesideIstioCNI(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		flag  bool
		want  string
	}{
		"in the list":                    {map[string]string{primaryFile: machine.SidecarList}, false, "set besideIstioCNI (--beside-istio-cni) to migrate from it"},
		"of an old release":              {map[string]string{primaryFile: strings.Replace(machine.SidecarList, `"type": "istio-cni"`, `"type": "v2-istio-cni"`, 1)}, false, "has the entry of v2-istio-cni"},
		"in a list of its own":           {map[string]string{"02-istio-cni.conflist": machine.SidecarList, primaryFile: machine.PtpList}, false, "02-istio-cni.conflist, which the runtime loads"},
		"in a list made of a conf":       {map[string]string{"10-ptp.conflist": machine.SidecarList, "20-bridge.conf": machine.BridgeConf}, false, "10-ptp.conflist, which the runtime loads"},
		"our entry in a list not loaded": {map[string]string{primaryFile: machine.SidecarList, "20-old.conflist": machine.BothList}, false, "remove istio-cni"},
		"another network's drop-in":      {map[string]string{primaryFile: machine.SidecarList, "other/capture-cni.conf": "{}"}, false, "remove istio-cni"},
		"ambient":                        {map[string]string{primaryFile: machine.AmbientList}, false, "disable ambient mode in istio-cni"},
		"ambient, with the flag":         {map[string]string{primaryFile: machine.AmbientList}, true, "disable ambient mode in istio-cni"},
	} {
		for _, mode := range []report.Mode{report.Auto, report.DropIn, report.Insert, report.Owned} {
			n, net, _ := listNode(t, test.files, mode, test.flag)
			changed, err := n.PlaceEntry(t.Context())
			if err == nil || changed || !strings.Contains(err.Error(), test.want) || conflist.IsWaiting(err) {
				t.Errorf("%s, mode %s: changed: %v, %v", name, mode, changed, err)
			}
			machine.ExpectFiles(t, net, test.files)
			if _, fault := n.examineEntry(t.Context(), "/var/lib/capture-cni/kubeconfig", mode); fault == nil || err == nil || fault.Error() != err.Error() {
				t.Errorf("%s, mode %s: verify says %v", name, mode, fault)
			}
		}
	}
}

// TestAllowedBesideOthers places the entry next to istio-cni on request, and next to
// plugins that do not capture its pods.
func TestAllowedBesideOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		flag  bool
		mode  report.Mode
		want  []string // file, and types in it
	}{
		"auto, with the flag":        {map[string]string{primaryFile: machine.SidecarList}, true, report.Auto, []string{primaryFile, "ptp istio-cni capture-cni"}},
		"insert, with the flag":      {map[string]string{primaryFile: machine.SidecarList}, true, report.Insert, []string{primaryFile, "ptp istio-cni capture-cni"}},
		"owned, with the flag":       {map[string]string{primaryFile: machine.SidecarList}, true, report.Owned, []string{conflist.OwnedName, "ptp capture-cni"}},
		"drop-in, with the flag":     {map[string]string{primaryFile: machine.SidecarList}, true, report.DropIn, []string{"podnet/capture-cni.conf", "capture-cni"}},
		"Linkerd":                    {map[string]string{primaryFile: machine.LinkerdList}, false, report.Insert, []string{primaryFile, "ptp linkerd-cni capture-cni"}},
		"Linkerd, owned":             {map[string]string{primaryFile: machine.LinkerdList}, false, report.Owned, []string{conflist.OwnedName, "ptp linkerd-cni capture-cni"}},
		"istio-cni is not loaded":    {map[string]string{primaryFile: machine.PtpList, "YYY-istio-cni.conf": `{"type":"istio-cni"}`}, false, report.Insert, []string{primaryFile, "ptp capture-cni"}},
		"a file of istio-cni's name": {map[string]string{"02-istio-cni.conflist": machine.PtpList}, false, report.Insert, []string{"02-istio-cni.conflist", "ptp capture-cni"}},
		"Multus":                     {map[string]string{"YYY-istio-cni.conf": `{"cniVersion":"0.3.1","name":"istio-cni","type":"istio-cni"}`}, false, report.Multus, []string{"capture-cni.conf", "capture-cni"}},
	} {
		n, net, _ := listNode(t, test.files, test.mode, test.flag)
		if changed, err := n.PlaceEntry(t.Context()); err != nil || !changed {
			t.Errorf("%s: changed: %v, %v", name, changed, err)
		}
		if got := typesIn(t, net, test.want[0]); got != test.want[1] {
			t.Errorf("%s: %s has %q, want %q", name, test.want[0], got, test.want[1])
		}
		warning, fault := n.examineEntry(t.Context(), "/var/lib/capture-cni/kubeconfig", n.Placed)
		if fault != nil {
			t.Errorf("%s: verify says %v", name, fault)
		}
		if twice := strings.Contains(test.want[1], "istio-cni") || n.Placed == report.DropIn; strings.Contains(warning.String(), "does not start") != twice {
			t.Errorf("%s: both capture: %v, and verify warns %q", name, twice, warning)
		}
	}
}

// typesIn returns the types in a list or a plain configuration.
func typesIn(t *testing.T, net *host.Dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(net.Path(), name))
	if err != nil {
		t.Error(err)
		return ""
	}
	var types []string
	for _, part := range strings.Split(strings.ReplaceAll(string(text), " ", ""), `"type":"`)[1:] {
		pluginType, _, _ := strings.Cut(part, `"`)
		types = append(types, pluginType)
	}
	return strings.Join(types, " ")
}

// TestEntryStays has an entry that was there before istio-cni: in whatever mode the agent
// starts, the entry stays where it is, up to date, and the agent adds no other.
func TestEntryStays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		where string
		types string
	}{
		"inserted":              {map[string]string{primaryFile: machine.BothList}, primaryFile, "ptp istio-cni capture-cni"},
		"inserted, ambient":     {map[string]string{primaryFile: strings.Replace(machine.AmbientList, "}]", `}, {"type":"capture-cni"}]`, 1)}, primaryFile, "ptp istio-cni capture-cni"},
		"inserted, in front":    {map[string]string{primaryFile: strings.Replace(machine.SidecarList, `"ptp"}`, `"ptp"}, {"type":"capture-cni"}`, 1)}, primaryFile, "ptp istio-cni capture-cni"},
		"drop-in":               {map[string]string{primaryFile: machine.SidecarList, "podnet/capture-cni.conf": "{}"}, "podnet/capture-cni.conf", "capture-cni"},
		"owned":                 {map[string]string{primaryFile: machine.SidecarList, conflist.OwnedName: "{}"}, conflist.OwnedName, "ptp capture-cni"},
		"owned, ambient":        {map[string]string{primaryFile: machine.AmbientList, conflist.OwnedName: "{}"}, conflist.OwnedName, "ptp istio-cni capture-cni"},
		"owned, of Istio's own": {map[string]string{"02-istio-cni.conflist": machine.SidecarList, primaryFile: machine.PtpList, conflist.OwnedName: "{}"}, conflist.OwnedName, "ptp capture-cni"},
	} {
		for _, mode := range []report.Mode{report.Auto, report.DropIn, report.Insert, report.Owned} {
			n, net, log := listNode(t, test.files, mode, false)
			for range 2 { // the second agent or pass finds the same
				if _, err := n.PlaceEntry(t.Context()); err != nil {
					t.Errorf("%s, mode %s: %v", name, mode, err)
				}
			}
			if got := typesIn(t, net, test.where); got != test.types {
				t.Errorf("%s, mode %s: %s has %q, want %q", name, mode, test.where, got, test.types)
			}
			warning, fault := n.examineEntry(t.Context(), "/var/lib/capture-cni/kubeconfig", mode)
			if fault != nil {
				t.Errorf("%s, mode %s: verify says %v", name, mode, fault)
			}
			if twice := strings.Contains(test.types, "istio-cni") || test.types == "capture-cni"; (len(warning) > 0) != twice {
				t.Errorf("%s, mode %s: both capture: %v, and verify warns %q", name, mode, twice, warning)
			}
			got, want := machine.Files(t, net), maps.Clone(test.files)
			delete(got, test.where)
			delete(want, test.where)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, mode %s: other files (-want +got):\n%s", name, mode, diff)
			}
			if count := strings.Count(log.String(), "level=WARN"); count != 1 || !strings.Contains(log.String(), "entry=kept") {
				t.Errorf("%s, mode %s: %d warnings: %s", name, mode, count, log)
			}
		}
	}
}

// TestIstioCNIComesAndGoes has one agent that places its entry once istio-cni has left,
// keeps it when istio-cni is back with ambient mode, and then changes its mode.
func TestIstioCNIComesAndGoes(t *testing.T) {
	t.Parallel()
	n, net, log := listNode(t, map[string]string{primaryFile: machine.SidecarList}, report.Owned, false)
	place := func(list string) error {
		t.Helper()
		machine.Write(t, net, primaryFile, list)
		_, err := n.PlaceEntry(t.Context())
		return err
	}
	expect := func(step, want string) {
		t.Helper()
		if got := typesIn(t, net, conflist.OwnedName); got != want {
			t.Errorf("%s: the agent's list has %q, want %q", step, got, want)
		}
	}
	if err := place(machine.SidecarList); err == nil {
		t.Error("placed next to istio-cni")
	}
	if err := place(machine.PtpList); err != nil {
		t.Errorf("istio-cni has left: %v", err)
	}
	expect("istio-cni has left", "ptp capture-cni")
	if err := place(machine.SidecarList); err != nil {
		t.Errorf("istio-cni is back: %v", err)
	}
	expect("istio-cni is back", "ptp capture-cni")
	if err := place(machine.AmbientList); err != nil {
		t.Errorf("ambient mode: %v", err)
	}
	expect("ambient mode", "ptp istio-cni capture-cni")
	if got := strings.Count(log.String(), "istio-cni or another mesh's plugin is in the list"); got != 3 {
		t.Errorf("%d warnings about three changes: %s", got, log)
	}
	if err := place(machine.AmbientList[:20]); !conflist.IsWaiting(err) {
		t.Errorf("half written: %v", err)
	}
	expect("half written", "ptp istio-cni capture-cni")
	if got := strings.Count(log.String(), "any more"); got != 1 {
		t.Errorf("istio-cni left once, and the log says it %d times: %s", got, log)
	}

	next := New(n.Settings, nil, nil, slog.New(slog.NewTextHandler(log, nil)))
	next.Mode, next.Credentials = report.Insert, n.Credentials
	n = next
	if err := place(machine.AmbientList); err != nil || next.Placed != report.Owned {
		t.Errorf("another mode, with ambient mode: placed in %s, %v", next.Placed, err)
	}
	expect("another mode", "ptp istio-cni capture-cni")
	if err := place(machine.PtpList); err != nil || next.Placed != report.Insert {
		t.Errorf("another mode, istio-cni has left: placed in %s, %v", next.Placed, err)
	}
	if has, _ := net.Has(conflist.OwnedName); has || typesIn(t, net, primaryFile) != "ptp capture-cni" {
		t.Errorf("the mode was not changed: %v", machine.Files(t, net))
	}
}

// TestEntryThatStays tells of an entry of another mode that can't be removed: the plugin
// would be called twice, or by a list that is out of date.
func TestEntryThatStays(t *testing.T) {
	t.Parallel()
	n, net, _ := listNode(t, map[string]string{primaryFile: machine.PtpList}, report.Insert, false)
	if err := os.MkdirAll(filepath.Join(net.Path(), conflist.OwnedName, "in-use"), 0o755); err != nil {
		t.Fatal(err)
	}
	changed, err := n.PlaceEntry(t.Context())
	if !changed || err == nil || !strings.Contains(err.Error(), conflist.OwnedName) {
		t.Errorf("changed: %v, %v", changed, err)
	}
	if got := typesIn(t, net, primaryFile); got != "ptp capture-cni" {
		t.Errorf("the list has %q", got)
	}
}
