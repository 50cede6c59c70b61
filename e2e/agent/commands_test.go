// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// TestFaultsOfFlags expects one error with every fault: flag, value and expected form.
func TestFaultsOfFlags(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	for content, want := range map[string]string{
		`{"backend": "ebtables", "ipv6": 5}`: "expected one of",
		`{"excludeNamespace": []}`:           `"excludeNamespace" is not known`,
		`{"type": "x"}`:                      `the key "type", which the agent writes itself`,
		`[]`:                                 "expected a JSON object",
		`{`:                                  "expected a JSON object",
	} {
		check(t, os.WriteFile(netConf, []byte(content), 0o600))
		for _, command := range []string{"run", "render", "verify", "preflight"} {
			out, err := n.command(command, "--netconf", netConf, "--mode", "insrt", "--bin-dir", "bin", "--token-ttl", "5m")
			if err == nil {
				t.Errorf("%s accepts %s", command, content)
			}
			for _, want := range []string{want, `--mode is "insrt": expected auto, dropin, insert, owned, multus or multus-chain`, `--bin-dir is "bin": expected an absolute path`, "--token-ttl is 5m0s"} {
				if !strings.Contains(out, want) {
					t.Errorf("%s with %s does not print %q: %s", command, content, want, out)
				}
			}
		}
	}
	if out, err := n.command("run", "--listen", "nowhere"); err == nil || !strings.Contains(out, `--listen is "nowhere": expected host:port`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := n.command("run", "--state", "gone"); err == nil || !strings.Contains(out, "expected present or absent") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := n.command("verify", "--tmpfiles-dir", "etc", "--state-dir", "/var/lib/capture cni"); err == nil || !strings.Contains(out, `--tmpfiles-dir is "etc": expected`) || !strings.Contains(out, `--state-dir is "/var/lib/capture cni": expected`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := n.command("run", "--evict", "--node-name", "", "--listen", "127.0.0.1:0"); err == nil || !strings.Contains(out, "set --node-name") {
		t.Errorf("%v: %s", err, out)
	}
	check(t, os.WriteFile(netConf, []byte(`{"backend": "iptables"}`), 0o600))
	if out, err := n.command("guard", "--netconf", netConf); err == nil || !strings.Contains(out, `netconf says "iptables": use report or evict`) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestVersion is the program's own.
func TestVersion(t *testing.T) {
	t.Parallel()
	info, err := buildinfo.ReadFile(filepath.Join(bin, "capture-cni-node"))
	check(t, err)
	if out, err := exec.Command(filepath.Join(bin, "capture-cni-node"), "--version").Output(); err != nil || string(out) != "capture-cni-node "+config.Version(info)+"\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRender prints the entry and what a pod's ADD would do.
func TestRender(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	check(t, os.WriteFile(netConf, []byte(`{"ipv6": "always", "mesh": {"outboundPort": 16001}}`), 0o600))
	out, err := n.command("render", "--netconf", netConf)
	check(t, err)
	var entry map[string]any
	check(t, json.Unmarshal([]byte(out), &entry))
	if entry["type"] != "capture-cni" || entry["kubeconfig"] != n.stateDir+"/kubeconfig" || entry["ipv6"] != "always" {
		t.Errorf("got %s", out)
	}
	out, err = n.command("render", "--netconf", netConf, "--pod", "../demo/pods/web.yaml")
	check(t, err)
	for _, want := range []string{"# intent:", "# nft -f\ntable inet capture-cni", "redirect to :16001", "# iptables-restore --noflush\n*mangle", "# ip6tables-restore"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q: %s", want, out)
		}
	}
	if out, err = n.command("render", "--pod", "../demo/pods/batch.yaml"); err != nil || !strings.HasPrefix(out, "not captured: ") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err = n.command("render", "--pod", "../demo/pods/web.yaml", "--address", "x"); err == nil || !strings.Contains(out, "expected an IP address") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestUninstallIncomplete succeeds with directories missing, and without an API server.
func TestUninstallIncomplete(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	check(t, n.api.Close())
	for _, gone := range []string{"", n.stateDir, n.binDir, n.netDir} {
		if gone != "" {
			check(t, os.RemoveAll(gone))
		}
		if out, err := n.command("uninstall", "--purge"); err != nil || !strings.Contains(out, "the node is clean") {
			t.Errorf("without %q: %v: %s", gone, err, out)
		}
	}
}
