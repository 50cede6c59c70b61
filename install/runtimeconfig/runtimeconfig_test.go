// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
)

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
		got, _ := Of(t.Context(), machine.New(t, test.files), nil)
		maxConfNum := -1
		if got.MaxConfNum != nil {
			maxConfNum = *got.MaxConfNum
		}
		if got.ConfDir != test.confDir || !slices.Equal(got.BinDirs, test.binDirs) || maxConfNum != test.maxConfNum {
			t.Errorf("%s: got %+v, max_conf_num %d", name, got, maxConfNum)
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
		if found, source := Of(t.Context(), both, machine.Serve(t, machine.Named{Runtime: name})); found.ConfDir != want {
			t.Errorf("%s: %s, by %s; want %s", name, found.ConfDir, source, want)
		}
	}
}
