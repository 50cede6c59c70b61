// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestCiliumExclusive knows by the files that Cilium renamed that it fights the entry, and
// for which modes that matters. The directories are made after Cilium's sources.
func TestCiliumExclusive(t *testing.T) {
	t.Parallel()
	const cilium, renamed = "/etc/cni/net.d/05-cilium.conflist", "/etc/cni/net.d/10-kindnet.conflist.cilium_bak"
	for name, test := range map[string]struct {
		file    string
		mode    report.Mode
		want    string
		runtime string
	}{
		"owned":                    {renamed, report.Owned, "also renames the agent's list, and pods start uncaptured: set cni.exclusive=false", ""},
		"the agent's own, renamed": {"/etc/cni/net.d/" + conflist.OwnedName + ciliumBackup, report.Owned, "Cilium renamed " + conflist.OwnedName, ""},
		"insert":                   {renamed, report.Insert, "also removes the entry from its own list, and pods start uncaptured: set cni.exclusive=false", ""},
		"auto":                     {renamed, report.Auto, "note: Cilium renamed 10-kindnet.conflist.cilium_bak", "containerd://2.1.4"},
		"auto, containerd 2.0":     {renamed, report.Auto, "\nCilium renamed 10-kindnet.conflist.cilium_bak", "containerd://2.0.7"},
		"auto, CRI-O":              {renamed, report.Auto, "\nCilium renamed 10-kindnet.conflist.cilium_bak", "cri-o://1.33.0"},
		"a drop-in is left alone":  {renamed, report.DropIn, "no problems found", ""},
		"with Multus":              {renamed, report.Multus, "no problems found", ""},
		"its own file of old":      {"/etc/cni/net.d/05-cilium.conf.cilium_bak", report.Owned, "no problems found", ""},
		"nothing renamed":          {"/etc/cni/net.d/87-podman.conflist", report.Owned, "no problems found", ""},
		"a directory of that name": {"/etc/cni/net.d/x.cilium_bak/y", report.Owned, "no problems found", ""},
	} {
		p := &preflight{settings: DefaultSettings(machine.New(t, map[string]string{cilium: machine.PtpList, test.file: machine.PtpList}))}
		p.settings.Mode, p.runtime = test.mode, report.ParseRuntime(test.runtime)
		p.exclusive(machine.OpenDir(t, p.settings.At(p.settings.NetDir)))
		if got := "\n" + p.found.String(); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestModes names the configurations that other users than root can read or change, and
// their modes.
func TestModes(t *testing.T) {
	t.Parallel()
	const list, other = "/etc/cni/net.d/10-a.conflist", "/etc/cni/net.d/20-b.conf"
	p := &preflight{settings: DefaultSettings(machine.New(t, map[string]string{list: machine.PtpList, other: "{}"}))}
	expect := func(listMode, otherMode os.FileMode, want string) {
		t.Helper()
		if err := errors.Join(os.Chmod(p.settings.At(list), listMode), os.Chmod(p.settings.At(other), otherMode)); err != nil {
			t.Fatal(err)
		}
		p.found = nil
		p.modes()
		if got := p.found.String(); !strings.Contains(got, want) || len(p.found.Of(report.Problem)) > 0 {
			t.Errorf("with the modes %o and %o: %s, want %q", listMode, otherMode, got, want)
		}
	}
	expect(0o600, 0o400, "no problems found")
	expect(0o644, 0o600, "note: the CIS Kubernetes Benchmark (1.1.9) expects the mode 0600 of files in /etc/cni/net.d: 10-a.conflist (0644): set the mode 0600")
	expect(0o600, 0o700, "20-b.conf (0700)")
	expect(0o660, 0o602, "10-a.conflist (0660), 20-b.conf (0602)")
}

// TestSocketBalancing knows data planes that translate a Service's address before the
// sidecar sees it. Interfaces and files are those that the sources of Cilium and Calico
// name.
func TestSocketBalancing(t *testing.T) {
	t.Parallel()
	const full, hostOnly = "#define ENABLE_SOCKET_LB_TCP 1\n#define ENABLE_SOCKET_LB_FULL 1\n", "#define ENABLE_SOCKET_LB_TCP 1\n#define ENABLE_SOCKET_LB_HOST_ONLY 1\n"
	cilium, calico := []string{"lo", "eth0", "cilium_net", "cilium_host"}, []string{"lo", "eth0", "bpfin.cali", "bpfout.cali", "cali1234"}
	for name, test := range map[string]struct {
		compiled string
		links    []string
		want     string
	}{
		"Cilium, in all sockets":       {full, cilium, "note: Cilium balances connections at the sockets of pods"},
		"Cilium, in the node's alone":  {hostOnly, cilium, "no problems found"},
		"Cilium, not at all":           {"#define ENABLE_IPV4 1\n", cilium, "no problems found"},
		"Cilium, seen from a pod":      {"", cilium, "note: Cilium may balance connections at the sockets of pods (interface cilium_host)"},
		"Calico with eBPF":             {"", calico, "set bpfConnectTimeLoadBalancing: Disabled"},
		"Calico with iptables":         {"", []string{"lo", "eth0", "cali1234", "vxlan.calico"}, "no problems found"},
		"Cilium chained behind Calico": {full, append(calico, cilium...), "Calico's eBPF data plane"},
	} {
		files := map[string]string{"/etc/hostname": "node"}
		if test.compiled != "" {
			files[ciliumNodeConfig] = test.compiled
		}
		p := &preflight{settings: DefaultSettings(machine.New(t, files)), links: test.links}
		p.socketBalancing()
		if got := p.found.String(); !strings.Contains(got, test.want) || len(p.found.Of(report.Problem)) > 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
}
