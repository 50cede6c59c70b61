// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/settings"
	"github.com/capture-cni/capture-cni/install/terms"
)

// TestPreflight says what would go wrong and what to do, and writes nothing.
func TestPreflight(t *testing.T) {
	t.Parallel()
	const list = "/etc/cni/net.d/10-a.conflist"
	const good = `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "calico"}]}`
	for name, test := range map[string]struct {
		files   map[string]string
		change  func(*settings.Node)
		want    []string
		serious bool
	}{
		"another directory": {
			map[string]string{list: good, "/etc/containerd/config.toml": "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"/elsewhere\"\nbin_dir = \"/home/kubernetes/bin\"\n"},
			nil,
			[]string{"use --net-dir /elsewhere", "use --bin-dir /home/kubernetes/bin"},
			true,
		},
		"many lists": {
			map[string]string{list: good, "/etc/containerd/config.toml": "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"/etc/cni/net.d\"\nmax_conf_num = 0\n"},
			func(s *settings.Node) { s.Mode = terms.Owned },
			[]string{"max_conf_num = 0", "set it to 1"},
			true,
		},
		"no primary":  {map[string]string{"/etc/cni/net.d/99-loopback.conf": `{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`}, nil, []string{"the interface plugin has not been installed", "wait for it"}, true},
		"old version": {map[string]string{list: strings.Replace(good, "1.0.0", "0.2.0", 1)}, nil, []string{"has cniVersion 0.2.0"}, true},
		"Linkerd":     {map[string]string{list: machine.LinkerdList}, nil, []string{"note: 10-a.conflist, which the runtime loads, has the entry of linkerd-cni", "with a proxy of its own"}, true},
		"istio-cni":   {map[string]string{list: machine.SidecarList}, nil, []string{"has the entry of istio-cni: a pod", "or set besideIstioCNI (--beside-istio-cni)"}, true},
		"allowed":     {map[string]string{list: machine.SidecarList}, func(s *settings.Node) { s.BesideIstioCNI = true }, []string{"note: 10-a.conflist, which the runtime loads, has the entry of istio-cni, and besideIstioCNI is set"}, true},
		"ours stays":  {map[string]string{list: machine.BothList}, nil, []string{"note: 10-a.conflist, which the runtime loads, has the entry of istio-cni, and an entry of capture-cni was there already"}, true},
		"ambient":     {map[string]string{list: machine.AmbientList}, func(s *settings.Node) { s.BesideIstioCNI = true }, []string{"with ambient mode enabled", "remove capture-cni, or disable ambient mode"}, true},
		"Multus":      {map[string]string{list: strings.Replace(good, "calico", "multus-shim", 1)}, nil, []string{"consider --mode multus", "every pod costs an API read"}, true},
		"with Multus": {map[string]string{"/etc/cni/net.d/whereabouts.d/x": ""}, func(s *settings.Node) { s.Mode = terms.Multus }, []string{"/opt/cni/bin does not exist"}, true},
		"no drop-in":  {map[string]string{list: strings.Replace(good, `"name"`, `"loadOnlyInlinedPlugins": true, "name"`, 1)}, func(s *settings.Node) { s.Mode = terms.DropIn }, []string{`use mode "insert": set it with --mode`}, true},
		"plain":       {map[string]string{"/etc/cni/net.d/10-a.conf": machine.BridgeConf}, nil, []string{`10-a.conf is a plain configuration, to which mode insert can't add the entry: use mode "owned"`}, true},
		"SELinux":     {map[string]string{list: good, "/sys/fs/selinux/enforce": "1"}, nil, []string{"note: SELinux is enforcing"}, true},
		"a chain": {
			map[string]string{"/etc/cni/net.d/10-other.conf": `{"type": "tuning"}`},
			func(s *settings.Node) { s.Mode, s.TmpfilesDir = terms.MultusChain, "/etc/tmpfiles.d" },
			[]string{"/etc/tmpfiles.d does not exist", "/opt/cni/bin does not exist"},
			true,
		},
		"a broken chain": {
			map[string]string{"/etc/cni/net.d/10-other.conf": `{"type": `},
			func(s *settings.Node) { s.Mode, s.Entry.Conf.Status = terms.MultusChain, config.StatusStrict },
			[]string{"10-other.conf, which another program wrote", "Multus skips the whole chain", "--tmpfiles-dir /etc/tmpfiles.d", "neither STATUS nor CHECK"},
			true,
		},
	} {
		wanted := settings.Default(machine.New(t, test.files))
		wanted.Mode = terms.Insert
		if test.change != nil {
			test.change(&wanted)
		}
		problems := Check(t.Context(), wanted, nil)
		for _, want := range test.want {
			if !strings.Contains(problems.String(), want) {
				t.Errorf("%s: it does not say %q: %s", name, want, problems)
			}
		}
		if wanted.Mode == terms.Multus && strings.Contains(problems.String(), "wait for it") || name == "ambient" && strings.Contains(problems.String(), "remove istio-cni") {
			t.Errorf("%s: it says too much: %s", name, problems)
		}
		if problems.Serious() != test.serious { // /opt/cni/bin is missing in all of them
			t.Errorf("%s: serious: %v: %s", name, problems.Serious(), problems)
		}
		if _, err := os.Stat(wanted.At("/var/lib")); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
}

// TestPreflightRefusesDropIns of a runtime that loads none, also where it does not report its
// directories and the agent can't read its files.
func TestPreflightRefusesDropIns(t *testing.T) {
	t.Parallel()
	wanted := settings.Default(machine.New(t, map[string]string{"/etc/cni/net.d/10-a.conflist": `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "calico"}]}`}))
	wanted.Mode = terms.DropIn
	for version, refused := range map[string]bool{"1.32.9": true, "1.34.0": false} {
		problems := Check(t.Context(), wanted, machine.Serve(t, machine.Named{Runtime: "cri-o", Release: version})).String()
		if strings.Contains(problems, "cri-o "+version+" loads no drop-in") != refused {
			t.Errorf("CRI-O %s is refused: %v, want %v: %s", version, !refused, refused, problems)
		}
	}
}
