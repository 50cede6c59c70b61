// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

const auto = `{"backend": "auto"}`

// testBackend runs the test of the backend, behind another command if one is given, and
// returns its output.
func (n *node) testBackend(netConf string, behind ...string) (string, error) {
	argv := append(behind, append([]string{filepath.Join(n.Release, "capture-cni-node"), "backend"}, n.Flags("--netconf", netConf)...)...)
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = append(os.Environ(), machine.NoRuntime)
	out, err := command.CombinedOutput()
	return string(out), err
}

// verdict returns what the last test showed.
func (n *node) verdict(t *testing.T) backend.Verdict {
	t.Helper()
	v, err := backend.Read(n.RunDir)
	lab.Check(t, err)
	return v
}

// TestBackend expects a good test once per boot: later ones need no capability. The choice
// for auto stays until the next boot.
func TestBackend(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, asked := range []string{"auto", "iptables-legacy", "iptables-nft", "nftables"} {
		netConf := `{"backend": "` + asked + `"}`
		if out, err := n.testBackend(netConf, "setpriv", "--bounding-set", "-net_admin"); err == nil || !strings.Contains(out, "the test lacks the capability NET_ADMIN: the agent waits") || n.verdict(t).Asked == config.Backend(asked) {
			t.Errorf("%s: a test without a permission is no verdict: %v, %s, %+v", asked, err, out, n.verdict(t))
		}
		out, err := n.testBackend(netConf)
		v := n.verdict(t)
		want := strings.Replace(asked, "auto", "nftables", 1)
		if err != nil || string(v.Asked) != asked || string(v.Chosen) != want || v.Reason+v.NoTProxy != "" {
			t.Errorf("%s: %v, %s, %+v", asked, err, out, v)
		}
		if out, err := n.testBackend(netConf, "setpriv", "--bounding-set", "-net_admin"); err != nil || !strings.Contains(out, "was tested since the node booted") {
			t.Errorf("%s, again: %v, %s", asked, err, out)
		}
	}
	chosen := backend.Verdict{Boot: bootID(t), Version: "an earlier one", Asked: backend.Auto, Chosen: config.IPTablesLegacy, Choice: config.IPTablesLegacy}
	failed := chosen
	failed.Chosen, failed.Reason = "", "no program"
	other := chosen
	other.Asked, other.Chosen = config.NFTables, config.NFTables
	later := chosen
	later.Boot = "another"
	for what, tt := range map[string]struct {
		before backend.Verdict
		want   config.Backend
	}{
		"another version":           {chosen, config.IPTablesLegacy},
		"a test that failed":        {failed, config.IPTablesLegacy},
		"another backend meanwhile": {other, config.IPTablesLegacy},
		"another boot":              {later, config.NFTables},
	} {
		lab.Check(t, backend.Write(n.RunDir, tt.before))
		if out, err := n.testBackend(auto); err != nil || n.verdict(t).Chosen != tt.want || n.verdict(t).Version == chosen.Version {
			t.Errorf("after %s: %v, %s, %+v", what, err, out, n.verdict(t))
		}
	}
	lab.Check(t, os.WriteFile(filepath.Join(n.RunDir, backend.DirectoryName, "verdict.json"), []byte("{"), 0o600))
	if out, err := n.testBackend(auto); err != nil || n.verdict(t).Chosen != config.NFTables {
		t.Errorf("a damaged file: %v, %s", err, out)
	}
}

// TestProgramsOfNode tests iptables by the programs of another file system, as the init
// container does.
func TestProgramsOfNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	root := t.TempDir()
	for _, tt := range []struct{ mount, want string }{
		{"true", "-save in /usr/sbin"},
		{"mount --rbind / " + root, ""},
	} {
		command := exec.Command("unshare", "--mount", "sh", "-c", tt.mount+` && PATH=/nowhere exec "$@"`, "sh", filepath.Join(n.Release, "capture-cni-node"), "backend",
			"--root", root, "--run-dir", n.RunDir, "--netconf", `{"backend": "iptables"}`)
		command.Env = []string{machine.NoRuntime, "PATH=" + os.Getenv("PATH")}
		out, err := command.CombinedOutput()
		lab.Check(t, err)
		if tt.want == "" && !strings.Contains(string(out), "tested the backend") || !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: %s", tt.mount, out)
		}
	}
}

// TestUntestedBackend expects no entry while the backend is not known to work, and a reason
// that an operator can act on. An entry that is there stays: without it, pods of the mesh
// would start uncaptured.
func TestUntestedBackend(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		netConf, reason string
		verdict         backend.Verdict
	}{
		"no test":  {auto, `backend: the backend is "auto", and this node was not tested`, backend.Verdict{}},
		"no auto":  {auto, `backend: the backend is "auto", and this node was not tested`, backend.Verdict{Asked: config.NFTables, Chosen: config.NFTables}},
		"nftables": {`{}`, "backend: the kernel lacks nf_tables", backend.Verdict{Asked: config.NFTables, Reason: "the kernel lacks nf_tables"}},
		"neither":  {auto, "backend: the kernel lacks all", backend.Verdict{Asked: backend.Auto, Reason: "the kernel lacks all"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			tt.verdict.Boot = bootID(t)
			lab.Check(t, backend.Write(n.RunDir, tt.verdict))
			a := n.Start(t, "--mode", "insert", "--netconf", tt.netConf)
			a.WaitForReadyz(t, tt.reason)
			lab.Check(t, a.ExpectMetric(`capture_cni_node_good{part="backend"} 0`))
			if types, err := n.LoadedTypes(); err != nil || strings.Contains(types, "capture-cni") {
				t.Errorf("the list has %s, %v", types, err)
			}
			if out, err := n.Command("verify", "--mode", "insert", "--netconf", tt.netConf); err == nil || !strings.Contains(out, tt.reason) {
				t.Errorf("verify: %v, %s", err, out)
			}
			a.Stop(t)
			if name != "no test" && name != "nftables" {
				return // the rest depends on whether there is a verdict, and not on its text
			}
			lab.Check(t, os.RemoveAll(filepath.Join(n.RunDir, backend.DirectoryName)))
			n.Start(t, "--mode", "insert").StopOnceReady(t)
			lab.Check(t, os.Remove(filepath.Join(n.StateDir, "placed"))) // as with an entry of an earlier release
			n.Start(t, "--mode", "insert").StopOnceReady(t)
			lab.Check(t, backend.Write(n.RunDir, tt.verdict))
			a = n.Start(t, "--mode", "insert", "--netconf", tt.netConf)
			a.WaitForReadyz(t, tt.reason)
			if types, err := n.LoadedTypes(); err != nil || !strings.Contains(types, "capture-cni") {
				t.Errorf("the list has %s, %v", types, err)
			}
			n.Write(t, machine.PrimaryName, machine.Kindnet) // as the primary's writer does at a boot
			n.expectEntrySoon(t, a)
			a.Stop(t)
			untested := n.Start(t, "--mode", "insert", "--netconf", tt.netConf, "--try-kernel=false")
			if tt.netConf == auto {
				untested.WaitForReadyz(t, "was not tested")
				return
			}
			untested.Ready(t)
		})
	}
}

func bootID(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	lab.Check(t, err)
	return strings.TrimSpace(string(content))
}

// TestChosenBackend expects the entry to name what was chosen for auto, a captured pod, and
// a report of what is lost.
func TestChosenBackend(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.PreparePods(t)
	lab.Check(t, backend.Write(n.RunDir, backend.Verdict{Boot: bootID(t), Asked: backend.Auto, Chosen: config.IPTablesNFT, Reason: "the kernel lacks nf_tables", NoTProxy: "the kernel lacks xt_TPROXY"}))
	n.StartReady(t, "--mode", "insert", "--netconf", `{"ipv6": "always", "backend": "auto"}`)
	out, err := n.Command("render", "--netconf", auto)
	var entry struct{ Backend string }
	if err != nil || json.Unmarshal([]byte(out), &entry) != nil || entry.Backend != "iptables-nft" {
		t.Errorf("render: %v, %s", err, out)
	}
	out, err = n.Command("verify", "--mode", "insert", "--netconf", `{"ipv6": "always", "backend": "auto"}`)
	for _, want := range []string{"note: auto chose the backend iptables-nft, so the guard is idle, and meshed pods with hostUsers: false can't start", "note: meshed pods with interceptionMode TPROXY can't start: the kernel lacks xt_TPROXY"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("verify: %v, %s, want %q", err, out, want)
		}
	}
	pod, err := n.AddPod(t, "web")
	lab.Check(t, err)
	lab.Check(t, pod.Host.Do(func() error {
		state, err := netfilter.Inspect(t.Context())
		if err == nil && state.Backend != config.IPTablesNFT {
			err = fmt.Errorf("captured by %q", state.Backend)
		}
		return err
	}))
	lab.Check(t, pod.Stop(t))
}
