// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
)

var containerd = machine.Named{Runtime: "containerd", Release: "2.1.0"}

// loadedList is a containerd that has loaded a list with a plugin.
func loadedList(plugin string) machine.Loading {
	source := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"multus","plugins":[{"type":%q}]}`, plugin)
	return machine.Loading{Named: containerd, Config: fmt.Sprintf(`{"PluginMaxConfNum": 1,
		"Networks": [{"Config": {"Plugins": [{"Network": {"Type": %q}}], "Source": %q}}]}`, plugin, source)}
}

// TestRuntimeFault compares the entry with what a runtime reports, if it does.
func TestRuntimeFault(t *testing.T) {
	t.Parallel()
	absent, err := cri.New(t.TempDir() + "/s")
	lab.Check(t, err)
	defer absent.Close()
	chain := machine.Loading{Named: containerd, Config: fmt.Sprintf(`{"Networks": [{"Config": {"Source": "{}"}}, {"Config": {"Source": %q}}, {"Config": {"Source": "{}"}}]}`,
		`{"type": "multus-shim", "auxiliaryCNIChainName": "multus"}`)}
	const unloaded = "the runtime has not loaded the entry: new pods start without the plugin"
	for name, tt := range map[string]struct {
		runtime *cri.Client
		mode    report.Mode
		want    string
	}{
		"no runtime":      {nil, report.DropIn, "<nil>"},
		"no socket":       {absent, report.Insert, "<nil>"},
		"no socket, auto": {absent, report.Auto, "asking the runtime for its status: no CRI socket at "},
		"a chain, silent": {machine.Serve(t, silent{containerd}), report.MultusChain, "asking the runtime for its status: "},
		"a chain, used":   {machine.Serve(t, chain), report.MultusChain, "<nil>"},
		"loaded":          {machine.Serve(t, loadedList("capture-cni")), report.DropIn, "<nil>"},
		"another plugin":  {machine.Serve(t, loadedList("ptp")), report.DropIn, unloaded},
		"not for Multus":  {machine.Serve(t, loadedList("ptp")), report.Multus, "<nil>"},
		"does not report": {machine.Serve(t, containerd), report.Auto, "<nil>"},
		"a chain, unused": {machine.Serve(t, loadedList("ptp")), report.MultusChain, ""},
		"a chain, no net": {machine.Serve(t, machine.Loading{Named: containerd, Config: "{}"}), report.MultusChain, "the runtime has loaded no network"},
	} {
		n, _ := wholeNode(t, func(s *Settings) { s.NetDir = "/etc/cni/multus" })
		n.Runtime = tt.runtime
		if got := fmt.Sprint(n.runtimeFault(t.Context(), tt.mode)); !strings.HasPrefix(got, cmp.Or(tt.want, "-")) && (tt.want != "" || got == "<nil>" || got == unloaded) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if report := n.VerifyMode(t.Context(), tt.mode); report.IsGood(PartRuntime) != (tt.want == "<nil>") {
			t.Errorf("%s: %s", name, report)
		}
	}
}

// TestIdentifyRuntime knows the runtime that answered last, and logs it once.
func TestIdentifyRuntime(t *testing.T) {
	t.Parallel()
	n, log := wholeNode(t, func(*Settings) {})
	if found := n.IdentifyRuntime(t.Context()); found != (Runtime{}) {
		t.Errorf("without a socket: %+v", found)
	}
	n.Runtime = machine.Serve(t, containerd)
	want := Runtime{Program: report.Runtime{Name: "containerd", Version: "2.1.0"}, Socket: n.Runtime.Socket()}
	for range 3 {
		if found := n.IdentifyRuntime(t.Context()); found != want {
			t.Errorf("found %+v", found)
		}
	}
	absent, err := cri.New(t.TempDir() + "/s")
	lab.Check(t, err)
	defer absent.Close()
	n.Runtime = absent
	if found := n.IdentifyRuntime(t.Context()); found != want || n.runtimeLoader(t.Context()).Runtime != want.Program {
		t.Errorf("found %+v last", found)
	}
	if logged := `msg="found the container runtime" name=containerd version=2.1.0 socket=` + want.Socket; strings.Count(log.String(), logged) != 1 {
		t.Errorf("logged %s", log)
	}
}

// TestAuto decides on the mode: a drop-in if the runtime loads it, and none next to an entry that is there.
func TestAuto(t *testing.T) {
	t.Parallel()
	ours := strings.Replace(machine.PtpList, "}]", `}, {"type": "capture-cni"}]`, 1)
	for name, tt := range map[string]struct {
		files map[string]string
		want  report.Mode
	}{
		"loaded":          {map[string]string{primaryFile: machine.PtpList}, report.DropIn},
		"no drop-ins":     {map[string]string{primaryFile: machine.PtpList}, report.Insert},
		"an entry":        {map[string]string{primaryFile: ours}, report.Insert},
		"an entry, owned": {map[string]string{primaryFile: machine.PtpList, conflist.OwnedName: "{}"}, report.Insert},
		"a conf":          {map[string]string{"10-a.conf": machine.BridgeConf}, report.Owned},
		"no list":         {nil, report.Auto},
	} {
		n, net, log := listNode(t, tt.files, report.Auto, false)
		runtime := loadedList("capture-cni")
		if name == "no drop-ins" {
			runtime.Release = "1.5.0"
		}
		n.Runtime = machine.Serve(t, runtime)
		changed, err := n.PlaceEntry(t.Context())
		if n.Mode != tt.want || n.Placed != tt.want || (err != nil) != (tt.want == report.Auto) || changed && tt.want == report.Auto {
			t.Errorf("%s: mode %s, placed %s, %v: %s", name, n.Mode, n.Placed, err, log)
		}
		if tt.want != report.DropIn {
			continue
		}
		for plugin, triggers := range map[string]bool{"capture-cni": false, "ptp": true} { // an agent was killed before the runtime saw the drop-in
			n.Runtime = machine.Serve(t, loadedList(plugin))
			lab.Check(t, os.Chtimes(net.Path(), time.Unix(1, 0), time.Unix(1, 0)))
			changed, err := n.PlaceEntry(t.Context())
			info, statErr := os.Stat(net.Path())
			if changed || errors.Join(err, statErr) != nil || info.ModTime().After(time.Unix(1, 0)) != triggers {
				t.Errorf("the runtime has loaded %s: changed %v, %v, directory changed at %v", plugin, changed, err, info.ModTime())
			}
		}
		machine.Write(t, net, primaryFile, ours[:20]) // its owner writes another kind of file
		lab.Check(t, os.Rename(net.Path()+"/"+primaryFile, net.Path()+"/10-ptp.bak"))
		machine.Write(t, net, "10-ptp.conf", machine.BridgeConf)
		if _, err := n.PlaceEntry(t.Context()); n.Mode != report.Owned {
			t.Errorf("%s, and then a conf: mode %s, %v", name, n.Mode, err)
		}
	}
}

// TestNotWithdrawn keeps the credentials while a plugin gets no pod from the agent.
func TestNotWithdrawn(t *testing.T) {
	t.Parallel()
	const stay = "the credentials stay until every installed plugin gets pods from the agent: "
	for name, tt := range map[string]struct {
		change func(*Node) error
		want   string
	}{
		"a plugin that fails":     {func(n *Node) error { return os.WriteFile(n.Settings.At("/opt/cni/bin/fail-ADD"), nil, 0o600) }, stay + "canary: calling the plugin in /opt/cni/bin: the node is broken"},
		"an agent that is silent": {func(n *Node) error { return os.Remove(n.Settings.PodsSocket()) }, stay + "asking the node agent at "},
	} {
		n := withoutCredentials(t, map[string]string{"/opt/cni/bin/other": "", stateDir + "token": "x", stateDir + "kubeconfig": "x", runDir + "kubeconfig": "x"})
		lab.Check(t, tt.change(n))
		state, err := n.ensureCredentials(t.Context(), false)
		if !conflist.IsWaiting(err) || !strings.HasPrefix(err.Error(), tt.want) ||
			state.Kubeconfig != stateDir+"kubeconfig" || n.read(t, stateDir+"token") != "x" {
			t.Errorf("%s: %+v, %v", name, state, err)
		}
		if n.read(t, runDir+"kubeconfig") != "" {
			t.Errorf("%s: no directory is without a kubeconfig for the canary", name)
		}
		if err := n.Canary(t.Context(), n.Settings.Credentials.Pod); !conflist.IsWaiting(err) {
			t.Errorf("%s: canary %v", name, err)
		}
	}
	n := withoutCredentials(t, map[string]string{"/opt/cni/bin/other": ""})
	lab.Check(t, n.Canary(t.Context(), n.Settings.Credentials.Pod))
	lab.Check(t, os.WriteFile(n.Settings.At("/opt/cni/bin/fail-ADD"), nil, 0o600))
	if err := n.Canary(t.Context(), n.Settings.Credentials.Pod); err == nil {
		t.Error("a canary that fails is fine")
	}
}

// TestFallbackIsShown warns of credentials that a reboot removes.
func TestFallbackIsShown(t *testing.T) {
	t.Parallel()
	token := "h." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"iat": %d, "exp": %d}`, time.Now().Unix(), time.Now().Unix()+3600)) + ".s"
	for directory, warns := range map[string]bool{stateDir: false, runDir: true} {
		n, _ := wholeNode(t, func(s *Settings) { s.Credentials.OnNode = true })
		lab.Check(t, os.MkdirAll(n.Settings.At(directory), 0o700))
		for name, text := range map[string]string{"token": token, "kubeconfig": "x", "ca.crt": "x"} {
			lab.Check(t, os.WriteFile(n.Settings.At(directory+name), []byte(text), 0o600))
		}
		report := n.VerifyMode(t.Context(), report.Insert)
		if shown := strings.Contains(report.String(), "warning: the plugin's current credentials are only in /run/capture-cni, which a reboot empties, because the disk of "+
			"/var/lib/capture-cni is full or read-only: free space on that disk, or make it writable"); shown != warns || !report.IsGood(PartCredentials) {
			t.Errorf("in %s: %s", directory, report)
		}
		if report := n.Verify(t.Context()); !report.IsGood(PartPods) {
			t.Errorf("with credentials, pods need no agent: %s", report)
		}
	}
}
