// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/cri"
)

// TestRuntimeConfig reads runtimes' own files as distributions ship them.
func TestRuntimeConfig(t *testing.T) {
	t.Parallel()
	const containerd = "/etc/containerd/config.toml"
	for name, test := range map[string]struct {
		files map[string]string
		want  cri.CNISettings
	}{
		"kubeadm, containerd 1.7": {
			map[string]string{containerd: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n  max_conf_num = 1\n"},
			cri.CNISettings{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, MaxConfNum: new(1)},
		},
		"containerd 2.1": {
			map[string]string{containerd: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/cni/bin', '/usr/lib/cni']\n  conf_dir = '/etc/cni/net.d'\n  max_conf_num = 0\n"},
			cri.CNISettings{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni"}, MaxConfNum: new(0)},
		},
		"containerd 2.1 with the key of earlier versions": {
			map[string]string{containerd: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dir = '/old/bin'\n  bin_dirs = ['/opt/cni/bin', '/usr/lib/cni']\n"},
			cri.CNISettings{BinDirs: []string{"/opt/cni/bin", "/usr/lib/cni", "/old/bin"}},
		},
		"containerd 1.2": {
			map[string]string{containerd: "[plugins.cri.cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n"},
			cri.CNISettings{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}},
		},
		"GKE": {
			map[string]string{containerd: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/home/kubernetes/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n"},
			cri.CNISettings{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/home/kubernetes/bin"}},
		},
		"k3s": {
			map[string]string{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = [\"/var/lib/rancher/k3s/data/cni\"]\n  conf_dir = \"/var/lib/rancher/k3s/agent/etc/cni/net.d\"\n"},
			cri.CNISettings{ConfDir: "/var/lib/rancher/k3s/agent/etc/cni/net.d", BinDirs: []string{"/var/lib/rancher/k3s/data/cni"}},
		},
		"RKE2": {
			map[string]string{"/var/lib/rancher/rke2/agent/etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/cni/bin']\n  conf_dir = '/etc/cni/net.d'\n"},
			cri.CNISettings{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}},
		},
		"MicroK8s": {
			map[string]string{"/var/snap/microk8s/current/args/containerd.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/var/snap/microk8s/current/opt/cni/bin\"\n  conf_dir = \"/var/snap/microk8s/current/args/cni-network\"\n"},
			cri.CNISettings{ConfDir: "/var/snap/microk8s/current/args/cni-network", BinDirs: []string{"/var/snap/microk8s/current/opt/cni/bin"}},
		},
		"CRI-O": {
			map[string]string{"/etc/crio/crio.conf": "[crio.network]\nnetwork_dir = \"/etc/cni/net.d/\"\nplugin_dirs = [\"/opt/cni/bin/\"]\n"},
			cri.CNISettings{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}},
		},
		"OpenShift": {
			map[string]string{
				"/etc/crio/crio.conf":                   "[crio.network]\ncni_default_network = \"podnet\"\nnetwork_dir = \"/etc/cni/net.d\"\nplugin_dirs = [\"/opt/cni/bin\"]\n",
				"/etc/crio/crio.conf.d/more/00-default": "[crio.network]\nnetwork_dir = \"/etc/kubernetes/cni/net.d/\"\nplugin_dirs = [\"/var/lib/cni/bin\", \"/usr/libexec/cni\"]\n",
			},
			cri.CNISettings{ConfDir: "/etc/kubernetes/cni/net.d", BinDirs: []string{"/var/lib/cni/bin", "/usr/libexec/cni"}, Network: "podnet"},
		},
		"only one directory": {
			map[string]string{containerd: "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n"},
			cri.CNISettings{BinDirs: []string{"/opt/cni/bin"}},
		},
		"only directories": {
			map[string]string{containerd: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\n  bin_dirs = ['/opt/cni/bin']\n"},
			cri.CNISettings{BinDirs: []string{"/opt/cni/bin"}},
		},
		"only a configuration, behind a file in no form": {
			map[string]string{
				containerd: "{\n",
				"/var/snap/microk8s/current/args/containerd.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  conf_dir = \"/etc/cni/net.d\"\n",
			},
			cri.CNISettings{ConfDir: "/etc/cni/net.d"},
		},
		"CRI-O's file with drop-ins of one key each, and one in no form": {
			map[string]string{
				"/etc/crio/crio.conf.d/00": "[crio.network]\nplugin_dirs = [\"/opt/cni/bin\"]\n",
				"/etc/crio/crio.conf.d/01": "[crio.network]\nnetwork_dir = \"/etc/cni/net.d\"\n",
				"/etc/crio/crio.conf.d/02": "[crio.network]\nplugin_dirs = [\"/none\"]\n{",
				"/etc/crio/crio.conf.d/03": "[crio.network]\n",
			},
			cri.CNISettings{ConfDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}},
		},
		"nothing said": {map[string]string{containerd: "version = 3\n"}, cri.CNISettings{}},
		"not TOML":     {map[string]string{containerd: "{"}, cri.CNISettings{}},
		"no runtime":   {nil, cri.CNISettings{}},
	} {
		root := machine.New(t, test.files)
		got, source := cri.ReadCNISettings(t.Context(), root, nil)
		if isSource := strings.Contains(test.files[strings.TrimPrefix(source, root)], "_dir"); isSource != (test.want.ConfDir != "" || test.want.BinDirs != nil) {
			t.Errorf("%s: by %q", name, source)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestWhereTheRuntimeLooks goes by the files of the runtime that runs, not of
// another that the node has, too.
func TestWhereTheRuntimeLooks(t *testing.T) {
	t.Parallel()
	both := machine.New(t, map[string]string{
		"/etc/containerd/config.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/usr/lib/cni\"\n  conf_dir = \"/etc/cni/net.d\"\n",
		"/etc/crio/crio.conf":         "[crio.network]\nnetwork_dir = \"/etc/kubernetes/cni/net.d\"\nplugin_dirs = [\"/var/lib/cni/bin\"]\n",
	})
	for name, want := range map[string]string{"cri-o": "/etc/kubernetes/cni/net.d", "containerd": "/etc/cni/net.d"} {
		if found, source := cri.ReadCNISettings(t.Context(), both, machine.Serve(t, machine.Named{Runtime: name})); found.ConfDir != want {
			t.Errorf("%s: %s, by %s; want %s", name, found.ConfDir, source, want)
		}
	}
}

// TestReported prefers the runtime's answer to its files.
func TestReported(t *testing.T) {
	t.Parallel()
	runtime := machine.Serve(t, machine.Loading{Named: machine.Named{Runtime: "containerd", Release: "2.1.0"}, Config: `{"PluginConfDir": "/conf"}`})
	if got, source := cri.ReadCNISettings(t.Context(), "/", runtime); got.ConfDir != "/conf" || source != "the runtime's status" {
		t.Errorf("got %+v, by %q", got, source)
	}
}
