// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// machine is a root file system of a few files.
func machine(t *testing.T, files map[string]string) Settings {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Settings{
		Root: root, Mode: Insert, NetDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, StateDir: "/var/lib/capture-cni",
		RunDir: "/run/capture-cni", Entry: Entry{Conf: config.Default()},
	}
}

// TestRuntimeConfig reads runtimes' own files as distributions ship them.
func TestRuntimeConfig(t *testing.T) {
	t.Parallel()
	const containerd = "/etc/containerd/config.toml"
	for name, test := range map[string]struct {
		files      map[string]string
		confDir    string
		binDirs    []string
		maxConfNum int // -1 for nothing said
	}{
		"kubeadm, containerd 1.7": {
			map[string]string{containerd: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n  max_conf_num = 1\n"},
			"/etc/cni/net.d",
			[]string{"/opt/cni/bin"},
			1,
		},
		"containerd 2.1": {
			map[string]string{containerd: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/cni/bin', '/usr/lib/cni']\n  conf_dir = '/etc/cni/net.d'\n  max_conf_num = 0\n"},
			"/etc/cni/net.d",
			[]string{"/opt/cni/bin", "/usr/lib/cni"},
			0,
		},
		"containerd 2.1 with the key of earlier versions": {
			map[string]string{containerd: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dir = '/old/bin'\n  bin_dirs = ['/opt/cni/bin', '/usr/lib/cni']\n"},
			"",
			[]string{"/opt/cni/bin", "/usr/lib/cni", "/old/bin"},
			-1,
		},
		"containerd 1.2": {
			map[string]string{containerd: "[plugins.cri.cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n"},
			"/etc/cni/net.d",
			[]string{"/opt/cni/bin"},
			-1,
		},
		"GKE": {
			map[string]string{containerd: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/home/kubernetes/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n"},
			"/etc/cni/net.d",
			[]string{"/home/kubernetes/bin"},
			-1,
		},
		"k3s": {
			map[string]string{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = [\"/var/lib/rancher/k3s/data/cni\"]\n  conf_dir = \"/var/lib/rancher/k3s/agent/etc/cni/net.d\"\n"},
			"/var/lib/rancher/k3s/agent/etc/cni/net.d",
			[]string{"/var/lib/rancher/k3s/data/cni"},
			-1,
		},
		"RKE2": {
			map[string]string{"/var/lib/rancher/rke2/agent/etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/cni/bin']\n  conf_dir = '/etc/cni/net.d'\n"},
			"/etc/cni/net.d",
			[]string{"/opt/cni/bin"},
			-1,
		},
		"MicroK8s": {
			map[string]string{"/var/snap/microk8s/current/args/containerd.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/var/snap/microk8s/current/opt/cni/bin\"\n  conf_dir = \"/var/snap/microk8s/current/args/cni-network\"\n"},
			"/var/snap/microk8s/current/args/cni-network",
			[]string{"/var/snap/microk8s/current/opt/cni/bin"},
			-1,
		},
		"CRI-O": {
			map[string]string{"/etc/crio/crio.conf": "[crio.network]\nnetwork_dir = \"/etc/cni/net.d/\"\nplugin_dirs = [\"/opt/cni/bin/\"]\n"},
			"/etc/cni/net.d",
			[]string{"/opt/cni/bin"},
			-1,
		},
		"OpenShift": {
			map[string]string{
				"/etc/crio/crio.conf":                   "[crio.network]\nnetwork_dir = \"/etc/cni/net.d\"\nplugin_dirs = [\"/opt/cni/bin\"]\n",
				"/etc/crio/crio.conf.d/more/00-default": "[crio.network]\nnetwork_dir = \"/etc/kubernetes/cni/net.d/\"\nplugin_dirs = [\"/var/lib/cni/bin\", \"/usr/libexec/cni\"]\n",
			},
			"/etc/kubernetes/cni/net.d",
			[]string{"/var/lib/cni/bin", "/usr/libexec/cni"},
			-1,
		},
		"nothing said": {map[string]string{containerd: "version = 3\n"}, "", nil, -1},
		"not TOML":     {map[string]string{containerd: "{"}, "", nil, -1},
		"no runtime":   {nil, "", nil, -1},
	} {
		got, _ := readRuntimeConfig(machine(t, test.files))
		maxConfNum := -1
		if got.maxConfNum != nil {
			maxConfNum = *got.maxConfNum
		}
		if got.confDir != test.confDir || !slices.Equal(got.binDirs, test.binDirs) || maxConfNum != test.maxConfNum {
			t.Errorf("%s: got %+v, max_conf_num %d", name, got, maxConfNum)
		}
	}
}

// TestPreflight says what would go wrong and what to do, and writes nothing.
func TestPreflight(t *testing.T) {
	t.Parallel()
	const list = "/etc/cni/net.d/10-a.conflist"
	const good = `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "calico"}]}`
	for name, test := range map[string]struct {
		files   map[string]string
		change  func(*Settings)
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
			func(s *Settings) { s.Mode = Owned },
			[]string{"max_conf_num = 0", "set it to 1"},
			true,
		},
		"no primary":  {map[string]string{"/etc/cni/net.d/99-loopback.conf": `{"cniVersion":"1.0.0","name":"lo","type":"loopback"}`}, nil, []string{"the interface plugin has not been installed", "wait for it"}, true},
		"old version": {map[string]string{list: strings.Replace(good, "1.0.0", "0.2.0", 1)}, nil, []string{"has cniVersion 0.2.0"}, true},
		"Linkerd":     {map[string]string{list: linkerdList}, nil, []string{"note: 10-a.conflist, which the runtime loads, has the entry of linkerd-cni", "with a proxy of its own"}, true},
		"istio-cni":   {map[string]string{list: sidecarList}, nil, []string{"has the entry of istio-cni: a pod", "or set besideIstioCNI (--beside-istio-cni)"}, true},
		"allowed":     {map[string]string{list: sidecarList}, func(s *Settings) { s.BesideIstioCNI = true }, []string{"note: 10-a.conflist, which the runtime loads, has the entry of istio-cni, and besideIstioCNI is set"}, true},
		"ours stays":  {map[string]string{list: bothList}, nil, []string{"note: 10-a.conflist, which the runtime loads, has the entry of istio-cni, and an entry of capture-cni was there already"}, true},
		"ambient":     {map[string]string{list: ambientList}, func(s *Settings) { s.BesideIstioCNI = true }, []string{"with ambient mode enabled", "remove capture-cni, or disable ambient mode"}, true},
		"Multus":      {map[string]string{list: strings.Replace(good, "calico", "multus-shim", 1)}, nil, []string{"consider --mode multus", "every pod costs an API read"}, true},
		"with Multus": {map[string]string{"/etc/cni/net.d/whereabouts.d/x": ""}, func(s *Settings) { s.Mode = Multus }, []string{"/opt/cni/bin does not exist"}, true},
		"no drop-in":  {map[string]string{list: strings.Replace(good, `"name"`, `"loadOnlyInlinedPlugins": true, "name"`, 1)}, func(s *Settings) { s.Mode = DropIn }, []string{"use --mode insert"}, true},
		"SELinux":     {map[string]string{list: good, "/sys/fs/selinux/enforce": "1"}, nil, []string{"note: SELinux is enforcing"}, true},
		"a chain": {
			map[string]string{"/etc/cni/net.d/10-other.conf": `{"type": "tuning"}`},
			func(s *Settings) { s.Mode, s.TmpfilesDir = MultusChain, "/etc/tmpfiles.d" },
			[]string{"/etc/tmpfiles.d does not exist", "/opt/cni/bin does not exist"},
			true,
		},
		"a broken chain": {
			map[string]string{"/etc/cni/net.d/10-other.conf": `{"type": `},
			func(s *Settings) { s.Mode, s.Entry.Conf.Status = MultusChain, config.StatusStrict },
			[]string{"10-other.conf, which another program wrote", "Multus skips the whole chain", "--tmpfiles-dir /etc/tmpfiles.d", "neither STATUS nor CHECK"},
			true,
		},
	} {
		settings := machine(t, test.files)
		if test.change != nil {
			test.change(&settings)
		}
		problems := Preflight(t.Context(), settings, nil)
		for _, want := range test.want {
			if !strings.Contains(problems.String(), want) {
				t.Errorf("%s: it does not say %q: %s", name, want, problems)
			}
		}
		if settings.Mode == Multus && strings.Contains(problems.String(), "wait for it") || name == "ambient" && strings.Contains(problems.String(), "remove istio-cni") {
			t.Errorf("%s: it says too much: %s", name, problems)
		}
		if problems.Serious() != test.serious { // /opt/cni/bin is missing in all of them
			t.Errorf("%s: serious: %v: %s", name, problems.Serious(), problems)
		}
		if _, err := os.Stat(settings.at("/var/lib")); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
}
