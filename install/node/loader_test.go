// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestLoader goes by the runtime's answer, then by its files and then by the settings.
func TestLoader(t *testing.T) {
	t.Parallel()
	containerd := machine.Named{Runtime: "containerd", Release: "2.1.0"}
	crio := map[string]string{
		"/etc/crio/crio.conf": "[crio.network]\ncni_default_network = \"podnet\"\nplugin_dirs = [\"/var/lib/cni/bin\"]\n", "/var/lib/cni/bin/ptp": "",
		"/etc/crio/crio.conf.d/00": "[crio.runtime]\n",
	}
	directory := t.TempDir()
	found := `{"PluginDirs": ["` + directory + `"], "PluginConfDir": "/conf", "PluginMaxConfNum": 3}`
	missing := `{"PluginDirs": ["` + directory + `", "/nowhere"], "PluginMaxConfNum": 0}`
	for name, test := range map[string]struct {
		files   map[string]string // nil for the machine's own
		runtime runtimeapi.RuntimeServiceServer
		want    conflist.Loader
	}{
		"no runtime": {map[string]string{"/none": ""}, nil, conflist.Loader{Most: 1, BinDirs: []string{"ROOT/opt/cni/bin"}}},
		"CRI-O's files": {
			crio,
			machine.Named{Runtime: "cri-o", Release: "1.34.0"},
			conflist.Loader{Runtime: report.Runtime{Name: "cri-o", Version: "1.34.0"}, Most: 1, Network: "podnet", BinDirs: []string{"ROOT/opt/cni/bin"}},
		},
		"CRI-O's answer": {
			crio,
			machine.CRIO{Named: machine.Named{Runtime: "cri-o", Release: "1.34.0"}, Config: "[crio.network]\n  cni_default_network = \"other\"\n  network_dir = \"/etc/cni/net.d/\"\n"},
			conflist.Loader{Runtime: report.Runtime{Name: "cri-o", Version: "1.34.0"}, Most: 1, Network: "other", BinDirs: []string{"ROOT/opt/cni/bin"}},
		},
		"CRI-O's answer, to an agent that sees all directories": {
			nil,
			machine.CRIO{Named: machine.Named{Runtime: "cri-o", Release: "1.34.0"}, Config: "[crio.network]\nplugin_dirs = [\"" + directory + "/\"]\n"},
			conflist.Loader{Runtime: report.Runtime{Name: "cri-o", Version: "1.34.0"}, Most: 1, BinDirs: []string{directory}, SeesAll: true},
		},
		"containerd's answer": {
			crio,
			machine.Loading{Named: containerd, Config: found},
			conflist.Loader{Runtime: report.Runtime{Name: "containerd", Version: "2.1.0"}, Most: 3, BinDirs: []string{"ROOT/opt/cni/bin"}},
		},
		"the agent sees all directories": {
			nil,
			machine.Loading{Named: containerd, Config: found},
			conflist.Loader{Runtime: report.Runtime{Name: "containerd", Version: "2.1.0"}, Most: 3, BinDirs: []string{directory}, SeesAll: true},
		},
		"the agent does not see one": {
			nil,
			machine.Loading{Named: containerd, Config: missing},
			conflist.Loader{Runtime: report.Runtime{Name: "containerd", Version: "2.1.0"}, BinDirs: []string{"ROOT/opt/cni/bin"}},
		},
		"no directories": {
			nil,
			machine.Loading{Named: containerd, Config: `{}`},
			conflist.Loader{Runtime: report.Runtime{Name: "containerd", Version: "2.1.0"}, BinDirs: []string{"ROOT/opt/cni/bin"}},
		},
	} {
		root, prefix := "/", ""
		if test.files != nil {
			root = machine.New(t, test.files)
			prefix = root
		}
		for i, directory := range test.want.BinDirs {
			test.want.BinDirs[i] = strings.Replace(directory, "ROOT", prefix, 1)
		}
		s := DefaultSettings(root)
		var client *cri.Client
		if test.runtime != nil {
			client = machine.Serve(t, test.runtime)
		}
		if diff := cmp.Diff(test.want, loaderOf(t.Context(), s, client)); diff != "" || s.BinDirs[0] != "/opt/cni/bin" {
			t.Errorf("%s: %s; the settings have %q", name, diff, s.BinDirs)
		}
	}
}
