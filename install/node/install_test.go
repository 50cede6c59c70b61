// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

const (
	stateDir = "/var/lib/capture-cni/"
	runDir   = "/run/capture-cni/"
	list     = "/etc/cni/net.d/10-ptp.conflist"
)

// wholeNode has all that an agent needs, whose plugin works.
func wholeNode(t *testing.T, change func(*Settings)) (*Node, *lab.Log) {
	t.Helper()
	wanted := DefaultSettings(machine.New(t, map[string]string{list: machine.PtpList, "/opt/cni/bin/ptp": "", "/image/other": ""}))
	wanted.Mode, wanted.Binary = report.Insert, wanted.At("/image/capture-cni")
	lab.Check(t, lab.WriteProgram(wanted.Binary, []byte("#!/bin/sh\necho '{\"supportedVersions\": []}'\n")))
	change(&wanted)
	var err error
	wanted.Entry, err = conflist.ParseEntry(nil, wanted.Mode, wanted.StateDir, wanted.RunDir)
	lab.Check(t, err)
	log := &lab.Log{}
	return New(wanted, nil, nil, slog.New(slog.NewTextHandler(log, nil))), log
}

func (n *Node) read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(n.Settings.At(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	return string(text)
}

// partsOf returns the parts of a report that are not in the desired state.
func partsOf(found Report) string {
	var parts []string
	for _, f := range found.Findings {
		parts = append(parts, map[report.Severity]string{report.Waiting: f.Subject + " waits", report.Problem: f.Subject}[f.Severity])
	}
	return strings.Join(parts, ", ")
}

// TestInstall installs a node and verifies it, on which a file is missing or in the way before or after
// the installation. No agent answers requests of pods.
func TestInstall(t *testing.T) {
	t.Parallel()
	const plugin, image, token = "/opt/cni/bin/capture-cni", "/image/capture-cni", stateDir + "token"
	onNode := func(s *Settings) { s.Credentials.OnNode = true }
	chain := func(s *Settings) { s.Mode, s.TmpfilesDir = report.MultusChain, "/etc/tmpfiles.d" }
	dual := func(s *Settings) { s.BinDirs = []string{"/opt/cni/bin", "/missing"} }
	dropIn := func(s *Settings) { s.Mode = report.DropIn }
	none := map[string]string{}
	for name, tt := range map[string]struct {
		change        func(*Settings)
		before, after map[string]string // texts of files; "-" to remove one
		install       string
		verify        string
	}{
		"good":             {nil, none, none, "", "pods"},
		"plugin gone":      {nil, none, map[string]string{plugin: "-"}, "", "binary, pods"},
		"entry gone":       {nil, none, map[string]string{list: machine.PtpList}, "", "entry, pods"},
		"credentials left": {nil, none, map[string]string{token: "x"}, "", "credentials waits, pods"},
		"image empty":      {nil, map[string]string{image: "-"}, none, "binary, entry waits", "binary, entry, pods"},
		"image, and runs":  {nil, map[string]string{image: "-", plugin: "#!/bin/sh\necho supportedVersions\n"}, none, "binary", "binary, pods"},
		"image, and fails": {nil, map[string]string{image: "-", plugin: "#!/bin/sh\nexit 1\n"}, none, "binary, entry waits", "binary, entry, pods"},
		"state a file":     {nil, map[string]string{"/var/lib/capture-cni": "x"}, none, "binary, credentials waits, entry waits", "binary, credentials waits, entry, pods"},
		"net gone":         {nil, map[string]string{"/etc/cni": "-"}, none, "entry", "entry, pods"},
		"no CA":            {onNode, none, none, "binary, credentials, entry waits", "binary, credentials, entry"},
		"a bin gone":       {dual, none, none, "binary, entry waits", "binary, entry, pods"},
		"chain":            {chain, map[string]string{"/etc/tmpfiles.d/other": "x"}, none, "", "pods"},
		"chain, boot gone": {chain, map[string]string{"/etc/tmpfiles.d/other": "x"}, map[string]string{"/etc/tmpfiles.d/capture-cni.conf": "-"}, "", "entry, pods"},
		"chain, copy gone": {chain, map[string]string{"/etc/tmpfiles.d/other": "x"}, map[string]string{stateDir + bootEntryName: "-"}, "", "entry, pods"},
		"chain, no boot":   {chain, none, none, "entry", "entry, pods"},
		"a conf alone":     {nil, map[string]string{list: "-", "/etc/cni/net.d/10-a.conf": machine.BridgeConf}, none, "entry", "entry, pods"},
		"drop-in, blocked": {dropIn, map[string]string{"/etc/cni/net.d/podnet/capture-cni.conf/a": "x"}, none, "entry", "entry, pods"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := wholeNode(t, func(s *Settings) {
				if tt.change != nil {
					tt.change(s)
				}
			})
			edit := func(files map[string]string) {
				for path, text := range files {
					path = n.Settings.At(path)
					lab.Check(t, os.RemoveAll(path))
					if text != "-" {
						lab.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
						lab.Check(t, lab.WriteProgram(path, []byte(text)))
					}
				}
			}
			edit(tt.before)
			report := n.Install(t.Context(), false)
			if got := partsOf(report); got != tt.install || report.Mode != n.Settings.Mode {
				t.Errorf("installed: %s in mode %s, want %s\n%s", got, report.Mode, tt.install, report)
			}
			if tt.install == "" && n.present([]string{n.Settings.StateDir}, placedName) == nil {
				t.Error("it is not noted that the node has an entry")
			}
			edit(tt.after)
			report = n.Verify(t.Context())
			if got := partsOf(report); got != tt.verify || report.Mode != n.Settings.Mode {
				t.Errorf("verified: %s in mode %s, want %s\n%s", got, report.Mode, tt.verify, report)
			}
		})
	}
}

// TestReport prints findings, the warning and notes, one a line.
func TestReport(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(parts()); got != "[owner binary credentials backend pods entry runtime]" {
		t.Errorf("the parts are %s", got)
	}
	fault := report.Finding{Code: report.EntryMissing, Severity: report.Problem, Subject: PartEntry, Reason: "late"}
	warning := report.Finding{Code: report.BesideIstioCNI, Severity: report.Warning, Reason: "twice", Next: "remove one"}
	note := report.Finding{Code: report.NoIPv6, Severity: report.Note, Reason: "a"}
	for want, report := range map[string]Report{
		"the node is in the desired state, in mode insert": {Mode: report.Insert},
		"the node is in the desired state, in mode insert\nwarning: twice: remove one [istio-cni]\nnote: a [no-ipv6]\nnote: a [no-ipv6]": {Mode: report.Insert, Findings: report.Findings{note, warning, note}},
		"entry: late [entry-missing]\nnote: a [no-ipv6]": {Findings: report.Findings{note, fault}},
	} {
		if report.String() != want || report.Good() != !strings.Contains(want, "late") {
			t.Errorf("%v %s, want %s", report.Good(), report, want)
		}
	}
	var found Report
	found.Add(PartPods, nil)
	found.Add(PartEntry, conflist.Waiting("no list"))
	found.Add(PartRuntime, errors.New("no answer"))
	want := report.Findings{
		{Code: report.EntryMissing, Severity: report.Waiting, Subject: PartEntry, Reason: "no list"},
		{Code: report.EntryNotLoaded, Severity: report.Problem, Subject: PartRuntime, Reason: "no answer"},
	}
	if diff := cmp.Diff(want, found.Findings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, part := range parts() {
		if report.CodeOfPart(part) == "" {
			t.Errorf("part %s has no code", part)
		}
	}
}

// TestVerifyForm pins the answers of verify and preflight, which scripts of earlier releases read, with the codes
// that it has gained.
func TestVerifyForm(t *testing.T) {
	t.Parallel()
	for want, found := range map[string]Report{
		`{"mode":"insert","findings":[]}`: {Mode: report.Insert},
		`{"mode":"auto","findings":[{"part":"entry","reason":"no list","waiting":true,"code":"entry-missing"}],` +
			`"warning":{"reason":"twice","nextStep":"remove one","code":"istio-cni"},"notes":["a: b"],"noteCodes":["no-ipv6"]}`: {report.Auto, report.Findings{
			{Code: report.NoIPv6, Severity: report.Note, Reason: "a", Next: "b"},
			{Code: report.BesideIstioCNI, Severity: report.Warning, Reason: "twice", Next: "remove one"},
			{Code: report.EntryMissing, Severity: report.Waiting, Subject: PartEntry, Reason: "no list"},
		}},
	} {
		if got, err := json.Marshal(found); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	const preflight = `[{"what":"a","do":"b","serious":true,"code":"read-only"},{"what":"c","do":"d","serious":false,"code":"selinux"}]`
	found := report.Findings{
		{Code: report.ReadOnly, Severity: report.Problem, Reason: "a", Next: "b"}, {Code: report.SELinux, Severity: report.Note, Reason: "c", Next: "d"},
	}
	if got, err := json.Marshal(Answers(found)); err != nil || string(got) != preflight {
		t.Errorf("%s, %v, want %s", got, err, preflight)
	}
	if got, err := json.Marshal(Answers(nil)); err != nil || string(got) != "[]" {
		t.Errorf("nothing is %s, %v", got, err)
	}
}

// TestOwner names the agent that holds the node, and the release that owns it.
func TestOwner(t *testing.T) { //nolint:paralleltest // another test's child has the lock until it calls exec
	for holder, pod := range map[string]capture.PodRef{"outside a pod": {}, "mesh/agent": {Namespace: "mesh", Name: "agent"}} {
		n, log := wholeNode(t, func(s *Settings) { s.Credentials.Pod, s.Owner = pod, "mine" })
		lab.Check(t, n.Uninstall(true, false)) // without a state directory
		lock, err := n.Claim()
		lab.Check(t, err)
		if owner, written := n.read(t, stateDir+ownerName), n.read(t, stateDir+holderName); owner != "mine\n" || written != holder+"\n" {
			t.Errorf("owner %q, holder %q", owner, written)
		}
		if _, err := n.Claim(); !conflist.IsWaiting(err) || err.Error() != "agent "+holder+" still runs on the node" {
			t.Errorf("a second agent: %v", err)
		}
		want := fmt.Sprintf("agent %s of release %q runs on the node and may install again what is removed", holder, "mine")
		if err := n.Uninstall(false, false); err == nil || !strings.HasPrefix(err.Error(), want) || n.read(t, stateDir+ownerName) == "" {
			t.Errorf("uninstalled under an agent: %v", err)
		}
		lab.Check(t, n.Uninstall(false, true))
		if n.read(t, stateDir+ownerName) != "" {
			t.Error("forced, and the owner stays")
		}
		if _, err := n.Claim(); !conflist.IsWaiting(err) || err.Error() != "another agent still runs on the node" {
			t.Errorf("a second agent on a clean node: %v", err)
		}
		lab.Check(t, lock.Close())
		for range 2 { // the owner that is there stays
			lock, err = n.Claim()
			lab.Check(t, err)
			lab.Check(t, lock.Close())
		}
		n.Settings.Owner = "another"
		if _, err := n.Claim(); err == nil || err.Error() != `the node belongs to release "mine", and this agent to "another": first uninstall the other release` {
			t.Errorf("another release: %v", err)
		}
		lab.Check(t, n.Uninstall(false, false))
		lock, err = n.Claim()
		lab.Check(t, err)
		lab.Check(t, lock.Close())
		lab.Check(t, n.Uninstall(false, false))
		lab.Check(t, os.MkdirAll(n.Settings.At(stateDir+ownerName)+"/in-the-way", 0o755))
		if _, err := n.Claim(); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("an owner that can't be read: %v", err)
		}
		lab.Check(t, os.RemoveAll(n.Settings.At(stateDir)))
		lab.Check(t, os.WriteFile(n.Settings.At("/var/lib/capture-cni"), nil, 0o600))
		if _, err := n.Claim(); err == nil || strings.Contains(log.String(), "failed") {
			t.Errorf("a state directory that is a file: %v; log %s", err, log)
		}
	}
}

// TestWithheld writes no entry for a backend that does not work, or without credentials, unless the node
// has had one.
func TestWithheld(t *testing.T) {
	t.Parallel()
	old := func(n *Node) error {
		return os.WriteFile(n.Settings.At("/etc/cni/net.d/"+conflist.OwnedName), []byte("{}"), 0o600)
	}
	called := func(n *Node) error { // with the entry of another configuration
		failing, lacking := n.Settings.Backend, n.Credentials.Kubeconfig
		n.Settings.Backend, n.Credentials.Kubeconfig = backend.Verdict{}, "/run/capture-cni/kubeconfig"
		_, err := n.PlaceEntry(t.Context())
		n.Settings.Backend, n.Credentials.Kubeconfig = failing, lacking
		return err
	}
	for name, tt := range map[string]struct {
		before  func(n *Node) error
		changed bool
	}{
		"called":            {called, false},
		"none yet":          {func(*Node) error { return nil }, false},
		"had one":           {func(n *Node) error { return n.ensureIn(n.Settings.StateDir, placedName, nil) }, true},
		"hidden":            {old, false},
		"hidden, and noted": {func(n *Node) error { return errors.Join(old(n), n.ensureIn(n.Settings.StateDir, placedName, nil)) }, true},
	} {
		lacks, _ := wholeNode(t, func(s *Settings) { s.Credentials.OnNode = true })
		lab.Check(t, errors.Join(os.MkdirAll(lacks.Settings.At(stateDir), 0o700), tt.before(lacks)))
		installed := lacks.Install(t.Context(), false)
		if got := strings.Contains(lacks.read(t, list), stateDir+config.KubeconfigName); got != tt.changed || installed.IsGood(PartCredentials) || installed.IsGood(PartEntry) != (tt.changed || name == "called") {
			t.Errorf("%s, without credentials: an entry: %v, %s", name, got, installed)
		}
		n, log := wholeNode(t, func(s *Settings) {})
		lab.Check(t, os.MkdirAll(n.Settings.At(stateDir), 0o700))
		n.Settings.Backend = backend.Verdict{Asked: config.NFTables, Reason: "no nf_tables"}
		n.Credentials.Kubeconfig = stateDir + config.KubeconfigName
		lab.Check(t, tt.before(n))
		changed, err := n.PlaceEntry(t.Context())
		if changed != tt.changed || err != nil || strings.Contains(n.read(t, list), stateDir+config.KubeconfigName) != tt.changed {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
		if strings.Contains(log.String(), `msg="placed the entry" mode=insert directory=/etc/cni/net.d`) != (tt.changed || name == "called") {
			t.Errorf("%s: logged %s", name, log)
		}
		for _, report := range []Report{n.VerifyMode(t.Context(), report.Insert), n.Install(t.Context(), false)} {
			if !strings.Contains(report.String(), "backend: no nf_tables") {
				t.Errorf("%s: %s", name, report)
			}
		}
		n.Settings.Backend = backend.Verdict{Asked: n.Settings.Entry.Asked, NoTProxy: "no module"}
		if report := n.VerifyMode(t.Context(), report.Insert); !strings.Contains(report.String(), "note: meshed pods with interceptionMode TPROXY can't start: no module") {
			t.Errorf("%s: %s", name, report)
		}
	}
}

// TestMarkedNode is not removable without a list of its pods, although the entry is gone.
func TestMarkedNode(t *testing.T) {
	t.Parallel()
	n, _ := wholeNode(t, func(s *Settings) {})
	lab.Check(t, n.CheckRemovable(t.Context(), false))
	lab.Check(t, os.MkdirAll(n.Settings.At(stateDir), 0o700))
	lab.Check(t, n.ensureIn(n.Settings.StateDir, placedName, nil))
	if err := n.CheckRemovable(t.Context(), false); err == nil || !strings.HasPrefix(err.Error(), "with --cri-socket none the agent can't list meshed pods") {
		t.Errorf("got %v", err)
	}
	n.Runtime = machine.Serve(t, &machine.Containerd{})
	lab.Check(t, n.CheckRemovable(t.Context(), false))
}

// TestNamesAreSynced installs a node on which an earlier agent was killed before it synced the names of
// the files that it had written. Nothing differs, and the new agent syncs the directories until it can.
func TestNamesAreSynced(t *testing.T) {
	var synced []string
	fault := error(syscall.EROFS)
	n, log := wholeNode(t, func(s *Settings) {
		s.Mode = report.DropIn
		s.Disk = func(operation, path string) error {
			if operation == "syncdir" {
				synced = append(synced, strings.TrimPrefix(path, s.Root))
				return fault
			}
			return nil
		}
	})
	directory := "/etc/cni/net.d/podnet"
	lab.Check(t, errors.Join(os.Mkdir(n.Settings.At(directory), 0o755), os.MkdirAll(n.Settings.At(stateDir), 0o700),
		os.WriteFile(n.Settings.At(directory)+"/"+conflist.DropInName, nil, 0o600)))
	all := []string{"/opt/cni/bin", "/var/lib/capture-cni", "/etc/cni/net.d", directory}
	expect := func(want []string, warnings int) {
		t.Helper()
		synced = nil
		n.syncNames()
		if diff := cmp.Diff(want, synced); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if got := strings.Count(log.String(), "syncing directories failed"); got != warnings {
			t.Errorf("%d warnings, want %d:\n%s", got, warnings, log)
		}
	}
	expect(all, 1)
	expect(all, 1) // the same fault again
	fault = nil
	expect(all, 1)
	expect(nil, 1)
	fault, n.Credentials.Kubeconfig = syscall.EIO, stateDir+config.KubeconfigName
	_, err := n.PlaceEntry(t.Context())
	if !errors.Is(err, host.ErrUnsynced) {
		t.Fatalf("got %v", err)
	}
	fault = nil
	expect(all, 1)
	expect(nil, 1)
}
