// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

// coded matches the code at the end of a line.
var coded = regexp.MustCompile(`(?m) \[[a-z-]+\]$`)

func withoutCodes(text string) string { return coded.ReplaceAllString(text, "") }

// TestPreflight compares all that preflight says of a node, and writes nothing.
func TestPreflight(t *testing.T) {
	t.Parallel()
	const (
		list, second = "/etc/cni/net.d/10-a.conflist", "/etc/cni/net.d/20-b.conflist"
		containerd   = "/etc/containerd/config.toml"
		good         = `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "calico"}]}`
		unknown      = "note: neither the runtime nor a file of containerd or CRI-O says which CNI directories the runtime uses: check that --bin-dir and, except under Multus, --net-dir are the runtime's"
		loads        = "10-a.conflist, which the runtime loads, has the entry of "
		retire       = "a pod that both plugins capture does not start: remove istio-cni (deploy/guides/migrate-istio-cni.md)"
		open         = "note: the CIS Kubernetes Benchmark (1.1.9) expects the mode 0600 of files in /etc/cni/net.d: NAME (0644): set the mode 0600, or ask the owner to"
		cri          = "[plugins.\"io.containerd.grpc.v1.cri\".cni]\n"
	)
	changed := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	openA := strings.Replace(open, "NAME", "10-a.conflist", 1)
	for name, test := range map[string]struct {
		files  map[string]string
		change func(*Settings)
		want   []string
	}{
		"good": {
			map[string]string{list: good, containerd: cri + "conf_dir = \"/etc/cni/net.d\"\nbin_dir = \"/opt/cni/bin\"\n", "/sys/fs/selinux/enforce": "0\n"},
			nil,
			[]string{openA},
		},
		"another directory": {
			map[string]string{list: good, containerd: cri + "conf_dir = \"/elsewhere\"\nbin_dir = \"/home/kubernetes/bin\"\n"},
			nil,
			[]string{
				"according to /etc/containerd/config.toml, the runtime reads network configurations in /elsewhere, not in /etc/cni/net.d: use --net-dir /elsewhere",
				`according to /etc/containerd/config.toml, the runtime executes plugins in ["/home/kubernetes/bin"], not in ["/opt/cni/bin"]: use --bin-dir /home/kubernetes/bin`,
				openA,
			},
		},
		"programs only": {map[string]string{list: good, containerd: cri + "bin_dir = \"/opt/cni/bin\"\n"}, nil, []string{openA}},
		"many lists": {
			map[string]string{list: good, containerd: cri + "conf_dir = \"/etc/cni/net.d\"\nmax_conf_num = 0\n"},
			func(s *Settings) { s.Mode = report.Owned },
			[]string{
				"max_conf_num = 0 in /etc/containerd/config.toml: in mode owned, the runtime would load the primary list next to the agent's: set it to 1, or use another mode", openA,
			},
		},
		"no primary": {
			map[string]string{"/etc/cni/net.d/99-loopback.conf": `{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`}, nil, []string{
				unknown, "note: 99-loopback.conf, which the runtime loads, has only the plugin loopback: the interface plugin has not been installed yet, or its file sorts after this one: the agent will wait for it",
				strings.Replace(open, "NAME", "99-loopback.conf", 1),
			},
		},
		"nothing": {nil, nil, []string{unknown, "/etc/cni/net.d does not exist: mount it, or set the right directory"}},
		"old version": {map[string]string{list: changed("1.0.0", "0.2.0")}, nil, []string{
			unknown, "10-a.conflist has cniVersion 0.2.0, which the plugin does not support: expected 0.3.0 to 1.1.0: correct it, or ask its owner to", openA,
		}},
		"Linkerd, and a list that is not loaded": {map[string]string{list: machine.LinkerdList, second: "{"}, nil, []string{
			unknown, "note: " + loads + "linkerd-cni, which captures pods with a proxy of its own: no pod may have proxies of both meshes; netconf.meshes says whose pods capture-cni captures",
			strings.Replace(open, "NAME", "10-a.conflist (0644), 20-b.conflist", 1),
		}},
		"istio-cni": {map[string]string{list: machine.SidecarList}, nil, []string{
			unknown, loads + "istio-cni: " + retire + ", or set besideIstioCNI (--beside-istio-cni) to migrate from it", openA,
		}},
		"allowed": {map[string]string{list: machine.SidecarList}, func(s *Settings) { s.BesideIstioCNI = true }, []string{
			unknown, "note: " + loads + "istio-cni, and besideIstioCNI is set: " + retire, openA,
		}},
		"ours stays": {map[string]string{list: machine.BothList}, nil, []string{
			unknown, "note: " + loads + "istio-cni, and an entry of capture-cni was there already: " + retire, openA,
		}},
		"ambient": {map[string]string{list: machine.AmbientList}, func(s *Settings) { s.BesideIstioCNI = true }, []string{
			unknown, loads + "istio-cni with ambient mode enabled, which captures ambient pods and those with sidecars: remove capture-cni, or disable ambient mode in istio-cni", openA,
		}},
		"Multus": {map[string]string{list: changed("calico", "multus-shim")}, nil, []string{
			unknown, "note: 10-a.conflist belongs to Multus: consider --mode multus, in which the plugin looks up each pod, because Multus passes no annotations", openA,
		}},
		"with Multus": {
			map[string]string{"/etc/cni/net.d/whereabouts.d/x": "", containerd: cri + "conf_dir = \"/elsewhere\"\n"},
			func(s *Settings) { s.Mode = report.Multus },
			[]string{"no problems found"},
		},
		"no drop-in": {map[string]string{list: changed(`"name"`, `"loadOnlyInlinedPlugins": true, "name"`)}, func(s *Settings) { s.Mode = report.DropIn }, []string{
			unknown, `10-a.conflist has loadOnlyInlinedPlugins: the runtime loads no drop-in; use mode "insert": set it with --mode`, openA,
		}},
		"plain": {map[string]string{"/etc/cni/net.d/10-a.conf": machine.BridgeConf}, nil, []string{
			unknown, `10-a.conf is a plain configuration, to which mode insert can't add the entry: use mode "owned", which leaves the file alone: set it with --mode`,
			strings.Replace(open, "NAME", "10-a.conf", 1),
		}},
		"SELinux and Cilium": {map[string]string{list: good, list + ciliumBackup: good, "/sys/fs/selinux/enforce": "1", ciliumNodeConfig: "#define ENABLE_SOCKET_LB_FULL 1\n"}, nil, []string{
			unknown, "Cilium renamed 10-a.conflist.cilium_bak: with cni.exclusive, Cilium also removes the entry from its own list, and pods start uncaptured: " + report.FixExclusive,
			strings.Replace(open, "NAME", "10-a.conflist (0644), 10-a.conflist.cilium_bak", 1),
			"note: Cilium balances connections at the sockets of pods (/run/cilium/state/globals/node_config.h): a sidecar then sees the address of a Service's backend, " +
				"so that its routes and policies for the Service do not apply: set socketLB.hostNamespaceOnly=true in Cilium's values",
			"note: SELinux is enforcing: run the agent with a type that may write to the node's directories (chart: seLinuxOptions.type=spc_t)",
		}},
		"a chain": {
			map[string]string{list: "{}"},
			func(s *Settings) {
				s.Mode, s.TmpfilesDir, s.BinDirs = report.MultusChain, "/etc/tmpfiles.d", []string{"/missing"}
			},
			[]string{unknown, "/missing does not exist: mount it, or set the right directory", "/etc/tmpfiles.d does not exist: mount it, or set the right directory", openA},
		},
		"a broken chain": {
			map[string]string{"/etc/cni/net.d/10-other.conf": `{"type": `},
			func(s *Settings) { s.Mode, s.Entry.Conf.Status = report.MultusChain, config.StatusStrict },
			[]string{
				unknown, "note: nothing recreates the entry in /etc/cni/net.d at boot, so if a boot removes it, pods start uncaptured until the agent runs: set --tmpfiles-dir /etc/tmpfiles.d if a boot empties --net-dir",
				`note: Multus passes neither STATUS nor CHECK on to its chain: {"status": "strict"} has no effect: remove it from --netconf`,
				"/etc/cni/net.d/10-other.conf, which another program wrote, is no plugin's configuration (not JSON at byte 9): Multus skips the whole chain, and pods start uncaptured; correct or delete that file: ask the owner of the file",
				strings.Replace(open, "NAME", "10-other.conf", 1),
			},
		},
	} {
		root := machine.New(t, test.files)
		wanted := DefaultSettings(root)
		wanted.Mode = report.Insert
		if test.change != nil {
			test.change(&wanted)
		}
		if err := os.MkdirAll(root+"/opt/cni/bin", 0o755); err != nil {
			t.Fatal(err)
		}
		problems := inAgent(t.Context(), wanted, nil)
		if diff := cmp.Diff(report.WithURLs(strings.Join(test.want, "\n")), strings.ReplaceAll(withoutCodes(problems.String()), root, "")); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if codes := len(coded.FindAllString(problems.String(), -1)); codes != len(problems) {
			t.Errorf("%s: %d lines of %d have a code", name, codes, len(problems))
		}
		isSerious := func(line string) bool { return !strings.HasPrefix(line, "no") }
		if serious := slices.ContainsFunc(test.want, isSerious); (len(problems.Of(report.Problem)) > 0) != serious {
			t.Errorf("%s: serious: %v", name, !serious)
		}
		if _, err := os.Stat(wanted.At("/var/lib")); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
}

// TestPreflightOnCRIO looks at each list that CRI-O may load, as the agent will.
func TestPreflightOnCRIO(t *testing.T) {
	t.Parallel()
	const list, second = "/etc/cni/net.d/10-a.conflist", "/etc/cni/net.d/20-b.conf"
	for name, test := range map[string]struct {
		mode    report.Mode
		network string
		want    string
	}{
		"owned":            {report.Owned, "", "the runtime may load 20-b.conf, to which mode owned adds no entry: CRI-O skips 10-a.conflist if it lacks a program: delete that file"},
		"auto":             {report.Auto, "", "the runtime may load 20-b.conf, to which mode owned adds no entry"},
		"insert":           {report.Insert, "", "20-b.conf is a plain configuration, to which mode insert can't add the entry"},
		"a network":        {report.Owned, "podnet", "no problems found"},
		"another network":  {report.Insert, "podnet", "20-b.conf is a plain configuration, to which mode insert can't add the entry"},
		"no such network":  {report.Owned, "none", "note: no network configuration in "},
		"the first of two": {report.Insert, "n", "no problems found"},
	} {
		root := machine.New(t, map[string]string{
			list: `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "calico"}]}`, second: machine.BridgeConf, "/opt/cni/bin/bridge": "#!/bin/sh\n",
		})
		wanted := DefaultSettings(root)
		wanted.Mode = test.mode
		config := fmt.Sprintf("[crio.network]\ncni_default_network = %q\nnetwork_dir = \"/etc/cni/net.d\"\nplugin_dirs = [\"/opt/cni/bin\"]\n", test.network)
		runtime := machine.Serve(t, machine.CRIO{Named: machine.Named{Runtime: "cri-o", Release: "1.34.0"}, Config: config})
		problems := slices.DeleteFunc(inAgent(t.Context(), wanted, runtime), func(problem report.Finding) bool { return problem.Code == report.FileModes })
		if got := problems.String(); !strings.HasPrefix(got, test.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestPreflightRefusesDropIns of a runtime that loads none, also where it does not report its
// directories and the agent can't read its files.
func TestPreflightRefusesDropIns(t *testing.T) {
	t.Parallel()
	wanted := DefaultSettings(machine.New(t, map[string]string{"/etc/cni/net.d/10-a.conflist": `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "calico"}]}`}))
	for version, refused := range map[string]bool{"1.32.9": true, "1.34.0": false, "1.31.0": false} {
		if wanted.Mode = report.DropIn; version == "1.31.0" {
			wanted.Mode = report.Insert
		}
		problems := Check(t.Context(), wanted, machine.Serve(t, machine.Named{Runtime: "cri-o", Release: version})).String()
		if strings.Contains(problems, "cri-o "+version+" loads no drop-in") != refused {
			t.Errorf("CRI-O %s is refused: %v, want %v: %s", version, !refused, refused, problems)
		}
		if untested := strings.Contains(problems, "the kernel was not tested: that needs root: run it as root"); untested != (os.Geteuid() != 0) {
			t.Errorf("the kernel was not tested: %v: %s", untested, problems)
		}
	}
}
