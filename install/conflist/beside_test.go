// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestBeside compares all of each decision, and what follows from it.
func TestBeside(t *testing.T) {
	t.Parallel()
	const ptp, ambient = "10-ptp.conflist", " with ambient mode enabled, which captures ambient pods and those with sidecars"
	for name, test := range map[string]struct {
		files   map[string]string
		mode    report.Mode
		flag    bool
		want    Other // zero for none
		allowed report.Mode
		what    string // the end of it
		do      string
		fault   bool
	}{
		"under Multus":       {map[string]string{ptp: machine.SidecarList}, report.Multus, false, Other{}, report.Multus, "", "", false},
		"no other":           {map[string]string{ptp: machine.PtpList}, report.Auto, false, Other{}, report.Auto, "", "", false},
		"no chained plugins": {map[string]string{ptp: strings.Replace(machine.SidecarList, `"1.0.0"`, `"0.2.0"`, 1)}, report.Insert, true, Other{}, report.Insert, "", "", true},
		"Linkerd": {
			map[string]string{ptp: machine.LinkerdList},
			report.Insert, false,
			Other{ptp, "linkerd-cni", false, allowed, ""},
			report.Insert,
			"linkerd-cni, which captures pods with a proxy of its own", "no pod may have proxies of both meshes; netconf.meshes says whose pods capture-cni captures", false,
		},
		"refused": {
			map[string]string{ptp: machine.SidecarList},
			report.Insert, false,
			Other{ptp, "istio-cni", false, Refused, ""},
			report.Insert, "istio-cni: a pod that both plugins capture does not start",
			"remove istio-cni (deploy/guides/migrate-istio-cni.md), or set besideIstioCNI (--beside-istio-cni) to migrate from it", true,
		},
		"allowed": {
			map[string]string{ptp: machine.SidecarList},
			report.Insert, true,
			Other{ptp, "istio-cni", false, allowed, ""},
			report.Insert,
			"istio-cni, and besideIstioCNI is set: a pod that both plugins capture does not start", "remove istio-cni (deploy/guides/migrate-istio-cni.md)", false,
		},
		"ambient": {
			map[string]string{ptp: machine.AmbientList},
			report.Insert, true,
			Other{ptp, "istio-cni", true, Refused, ""},
			report.Insert,
			"istio-cni" + ambient, "remove capture-cni, or disable ambient mode in istio-cni", true,
		},
		"kept": {
			map[string]string{ptp: machine.BothList},
			report.Auto, false,
			Other{ptp, "istio-cni", false, kept, report.Insert},
			report.Insert,
			"istio-cni, and an entry of capture-cni was there already: a pod that both plugins capture does not start", "remove istio-cni (deploy/guides/migrate-istio-cni.md)", false,
		},
		"kept, ambient": {
			map[string]string{ptp: machine.AmbientList, "podnet/capture-cni.conf": "{}"},
			report.Auto, false,
			Other{ptp, "istio-cni", true, kept, report.DropIn},
			report.DropIn,
			"istio-cni" + ambient + ", and an entry of capture-cni was there already: a pod that both plugins capture does not start", "remove capture-cni, or disable ambient mode in istio-cni", false,
		},
		"kept, owned": {
			map[string]string{ptp: machine.SidecarList, OwnedName: "{}"},
			report.Insert, false,
			Other{ptp, "istio-cni", false, kept, report.Owned},
			report.Owned,
			"istio-cni, and an entry of capture-cni was there already: 00-capture-cni.conflist, which leaves istio-cni out", "remove istio-cni (deploy/guides/migrate-istio-cni.md)", false,
		},
	} {
		others, mode, err := Beside(newNet(t, test.files), test.mode, test.flag)
		if (err != nil) != test.fault || mode != test.allowed {
			t.Errorf("%s: mode %s, %v", name, mode, err)
		}
		if test.want == (Other{}) {
			if others != nil {
				t.Errorf("%s: %+v", name, others)
			}
			continue
		}
		if diff := cmp.Diff([]Other{test.want}, others, cmp.AllowUnexported(Other{})); diff != "" {
			t.Fatalf("%s: -want +got:\n%s", name, diff)
		}
		found := others[0].Finding()
		if want := map[bool]report.Severity{true: report.Problem, false: report.Note}[test.fault]; found.Severity != want {
			t.Errorf("%s: the finding is a %s, want a %s", test.what, found.Severity, want)
		}
		what, do := found.Reason, found.Next
		if (found.Severity == report.Problem) != test.fault || found.Code.Advice() == "" || what != ptp+", which the runtime loads, has the entry of "+test.what || do != test.do || test.fault && err.Error() != what+": "+do {
			t.Errorf("%s: %s; %s; %v", name, what, do, err)
		}
		for _, mode := range []report.Mode{report.Insert, report.Owned} {
			twice := test.want.Plugin == "istio-cni" && test.want.Decision != Refused && (mode == report.Insert || test.want.ambient)
			if warnings := CapturesTwice(others, mode); (len(warnings) > 0) != twice || twice && warnings[0].Severity != report.Warning {
				t.Errorf("%s, with an entry of mode %s: %q", name, mode, warnings)
			}
		}
	}
}

// TestMaxConfNum refuses only mode owned, and only with more than one list.
func TestMaxConfNum(t *testing.T) {
	t.Parallel()
	one, all := 1, 0
	for most, refused := range map[*int]bool{nil: false, &one: false, &all: true} {
		if err := CheckMaxConfNum(report.Owned, most, "a file"); (err != nil) != refused || CheckMaxConfNum(report.Insert, most, "") != nil {
			t.Errorf("%v: %v", most, err)
		}
	}
}

// TestDescriptors counts this process's open files: an agent that runs for months must close
// each directory. It runs next to no other test.
func TestDescriptors(t *testing.T) { //nolint:paralleltest // it counts the whole process's files
	net := newNet(t, map[string]string{"10-ptp.conflist": machine.SidecarList, "podnet/capture-cni.conf": "{", "empty/.capture-cni-tmp-A": ""})
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	for range 20 {
		_, _, err := Beside(net, report.DropIn, false)
		if err := errors.Join(err, In(report.DropIn).Place(net, OldEntry), Fault(net, report.DropIn, OldEntry)); err != nil {
			t.Fatal(err)
		}
	}
	if after := open(); after > before+10 {
		t.Errorf("%d files are open, %d before", after, before)
	}
	if err := In(report.DropIn).Remove(net); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(net.Path(), "empty")); err != nil || len(entries) > 0 {
		t.Errorf("another program's directory has %v, %v", entries, err)
	}
}
