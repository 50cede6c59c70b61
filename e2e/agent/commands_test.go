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
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestFaultsOfFlags expects one error with every fault: flag, value and expected form.
func TestFaultsOfFlags(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	for content, want := range map[string]string{
		`{"backend": "ebtables", "ipv6": 5}`: "expected one of",
		`{"excludeNamespace": []}`:           `"excludeNamespace" is not known`,
		`{"type": "x"}`:                      `the key "type", which the agent or the runtime sets`,
		`[]`:                                 "expected a JSON object",
		`{`:                                  "expected a JSON object",
	} {
		lab.Check(t, os.WriteFile(netConf, []byte(content), 0o600))
		for _, command := range []string{"run", "render", "verify", "preflight"} {
			out, err := n.Command(command, "--netconf", netConf, "--mode", "insrt", "--bin-dir", "bin", "--token-ttl", "5m")
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
	if out, err := n.Command("run", "--listen", "nowhere"); err == nil || !strings.Contains(out, `--listen is "nowhere": expected host:port`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := n.Command("run", "--state", "gone"); err == nil || !strings.Contains(out, "expected present or absent") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := n.Command("verify", "--tmpfiles-dir", "etc", "--state-dir", "/var/lib/capture cni"); err == nil || !strings.Contains(out, `--tmpfiles-dir is "etc": expected`) || !strings.Contains(out, `--state-dir is "/var/lib/capture cni": expected`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := n.Command("run", "--evict", "--node-name", "", "--listen", "127.0.0.1:0"); err == nil || !strings.Contains(out, "set --node-name") {
		t.Errorf("%v: %s", err, out)
	}
	lab.Check(t, os.WriteFile(netConf, []byte(`{"backend": "iptables"}`), 0o600))
	if out, err := n.Command("guard", "--netconf", netConf); err == nil || !strings.Contains(out, `netconf says "iptables": use report or evict`) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestVersion is the program's own.
func TestVersion(t *testing.T) {
	t.Parallel()
	info, err := buildinfo.ReadFile(filepath.Join(machine.Bin, "capture-cni-node"))
	lab.Check(t, err)
	if out, err := exec.Command(filepath.Join(machine.Bin, "capture-cni-node"), "--version").Output(); err != nil || string(out) != "capture-cni-node "+config.Version(info)+"\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRender prints the entry and what a pod's ADD would do.
func TestRender(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(netConf, []byte(`{"ipv6": "always", "mesh": {"outboundPort": 16001}}`), 0o600))
	out, err := n.Command("render", "--netconf", netConf)
	lab.Check(t, err)
	var entry map[string]any
	lab.Check(t, json.Unmarshal([]byte(out), &entry))
	if entry["type"] != "capture-cni" || entry["kubeconfig"] != n.StateDir+"/kubeconfig" || entry["ipv6"] != "always" {
		t.Errorf("got %s", out)
	}
	out, err = n.Command("render", "--netconf", netConf, "--pod", "../demo/pods/web.yaml")
	lab.Check(t, err)
	for _, want := range []string{"# intent:", "# nft -f\ntable inet capture-cni", "redirect to :16001", "# iptables-restore --noflush\n*mangle", "# ip6tables-restore"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q: %s", want, out)
		}
	}
	if out, err = n.Command("render", "--pod", "../demo/pods/batch.yaml"); err != nil || !strings.HasPrefix(out, "not captured: ") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err = n.Command("render", "--pod", "../demo/pods/web.yaml", "--address", "x"); err == nil || !strings.Contains(out, "expected an IP address") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRenderTrace prints which rule of a pod decides about a packet, without a cluster.
func TestRenderTrace(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	web := []string{"--pod", "../demo/pods/web.yaml", "--address", "192.0.2.1,2001:db8::1"}
	for arguments, want := range map[string]string{
		"--to 10.1.2.3:443 --as 1000:1000":             "sent by uid 1000 and gid 1000, leaving by eth0\nverdict      redirected to port 15001\ndecided by   rule 1 of chain nat_ISTIO_REDIRECT in table inet capture-cni: to the proxy's outbound port\n",
		"--to 10.1.2.3:443 --as 1337:1337":             "verdict      passes, not captured\n",
		"--to 10.1.2.3:3306":                           "verdict      passes, not captured\ndecided by   rule 1 of chain nat_ISTIO_OUTPUT in table inet capture-cni: excluded outbound port\n",
		"--to 10.1.2.3:53 --udp":                       "UDP from any address to 10.1.2.3:53, leaving by eth0\nverdict      passes, not captured\n",
		"--to [2001:db8:51::1]:443":                    "excluded outbound range\n",
		"--to ::ffff:10.1.2.3:443":                     "",
		"--to [::ffff:10.1.2.3]:443":                   "to 10.1.2.3:443, leaving by eth0\nverdict      redirected to port 15001\n",
		"--to 192.0.2.1:8080 --in --from 10.1.2.3:999": "TCP from 10.1.2.3:999 to 192.0.2.1:8080, arriving by eth0\nverdict      redirected to port 15006\n",
		"--to 192.0.2.1:8080 --as 1337:1337":           "leaving by lo\nverdict      redirected to port 15006\n",
		"--to [2001:db8::1]:8080 --as 1337:1337":       "leaving by lo\nverdict      redirected to port 15006\n",
		"--to 192.0.2.1:8080 --interface net1":         "leaving by net1\n",
		"--to 127.0.0.1:8080 --from 127.0.0.6":         "TCP from 127.0.0.6 to 127.0.0.1:8080, leaving by lo\nverdict      passes, not captured\ndecided by   rule 2 of chain nat_ISTIO_OUTPUT in table inet capture-cni: inbound traffic that the proxy hands on\n",
		"--to 10.1.2.3:443 --mark 7":                   "leaving by eth0, with mark 7\n",
	} {
		out, err := n.Command("render", append(web, strings.Fields(arguments)...)...)
		if (err != nil) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want %q:\n%s", arguments, err, want, out)
		}
	}
	if out, err := n.Command("render", "--pod", "../demo/pods/batch.yaml", "--to", "10.1.2.3:443"); err != nil || !strings.HasPrefix(out, "verdict      passes: the pod is not captured\nbecause      ") {
		t.Errorf("%v: %s", err, out)
	}
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(netConf, []byte(`{"ipv6": "never"}`), 0o600))
	out, err := n.Command("render", append(web, "--netconf", netConf, "--to", "[2001:db8:2::1]:443")...)
	if err != nil || !strings.HasPrefix(out, "note         IPv6 is left uncaptured") || !strings.Contains(out, ": IPv6 is not captured\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestFaultsOfPackets expects one error that names each fault, and what is expected.
func TestFaultsOfPackets(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := "--pod ../demo/pods/web.yaml "
	for arguments, faults := range map[string][]string{
		"render --to 10.1.2.3:443":      {"--to needs --pod"},
		"render " + pod + "--udp":       {"--udp describes a packet: set --to"},
		"explain shop/web --as 5:5":     {"--as describes a packet: set --to"},
		"explain shop/web --to 1.2.3.4": {`--to is "1.2.3.4": expected an IP address and a port`},
		"render " + pod + "--to 10.1.2.3:0 --from web --as root --interface 1 --address x": {
			`--to is "10.1.2.3:0": expected`, `--from is "web": expected an IP address`, `--as is "root": expected`, `--interface is "1": expected an interface name`, `--address is "x": expected`,
		},
		"render " + pod + "--to 10.1.2.3:443 --from 2001:db8::1":                          {"an address of the same IP family as --to"},
		"render " + pod + "--to [fe80::1%eth0]:443 --from fe80::2%eth0":                   {`--to is "[fe80::1%eth0]:443"`, `--from is "fe80::2%eth0"`},
		"render " + pod + "--to 10.1.2.3:443 --in --as 1000:1000 --mark 1 --interface lo": {"--as with --in", "--mark with --in", `--interface is "lo": expected with --in, an interface to other hosts`},
		"render " + pod + "--to 10.1.2.3:443 --as 1000":                                   {`--as is "1000": expected`},
		"render " + pod + "--to 10.1.2.3:443 --as 1000:4294967296":                        {"expected a user and a group by number"},
	} {
		fields := strings.Fields(arguments)
		out, err := n.Command(fields[0], fields[1:]...)
		if err == nil {
			t.Errorf("%s is accepted:\n%s", arguments, out)
		}
		for _, fault := range faults {
			if !strings.Contains(out, fault) {
				t.Errorf("%s: it does not print %q: %s", arguments, fault, out)
			}
		}
	}
}

// TestUninstallIncomplete succeeds with directories missing, and without an API server.
func TestUninstallIncomplete(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	lab.Check(t, n.API.Close())
	for _, gone := range []string{"", n.StateDir, n.BinDir, n.NetDir} {
		if gone != "" {
			lab.Check(t, os.RemoveAll(gone))
		}
		if out, err := n.Command("uninstall", "--purge"); err != nil || !strings.Contains(out, "the node is clean") {
			t.Errorf("without %q: %v: %s", gone, err, out)
		}
	}
}
