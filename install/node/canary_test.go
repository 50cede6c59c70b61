// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// recordingPlugin writes its environment and its configuration next to itself. It fails
// with the command that the file fail-COMMAND names.
const recordingPlugin = `#!/bin/sh
PATH=/usr/bin:/bin
cd "${0%/*}"
{ env | grep ^CNI_ | sort; cat; echo; } > "$CNI_COMMAND"
if [ -e "fail-$CNI_COMMAND" ]; then echo '{"code": 999, "msg": "the node is broken"}'; exit 1; fi
`

// TestCanary calls the plugins of both directories.
func TestCanary(t *testing.T) {
	t.Parallel()
	pod := capture.PodRef{Namespace: "mesh", Name: "agent", UID: "1"}
	for _, test := range []struct {
		fails, want string // the error
	}{
		{},
		{"/opt/cni/bin/fail-ADD", "canary: calling the plugin in /opt/cni/bin: the node is broken [add-failed]"},
		{"/usr/lib/cni/fail-ADD", "canary: calling the plugin in /usr/lib/cni: the node is broken [add-failed]"},
	} {
		wanted := DefaultSettings(machine.New(t, map[string]string{"/opt/cni/bin/other": "", "/usr/lib/cni/other": ""}))
		wanted.BinDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}
		entry, err := conflist.ParseEntry([]byte(`{"excludeNamespaces":["mesh"]}`), report.Insert, wanted.StateDir, wanted.RunDir)
		if err != nil {
			t.Fatal(err)
		}
		wanted.Entry = entry
		for _, directory := range wanted.BinDirs {
			if err := lab.WriteProgram(wanted.At(directory)+"/"+conflist.PluginType, []byte(recordingPlugin)); err != nil {
				t.Fatal(err)
			}
		}
		if test.fails != "" {
			if err := os.WriteFile(wanted.At(test.fails), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err = (&Node{Settings: wanted}).canary(t.Context(), "/var/lib/capture-cni/kubeconfig", pod)
		if got := fmt.Sprint(err); test.want != "" && got != test.want || test.want == "" && err != nil {
			t.Errorf("%+v: %v", test, err)
		}
		if test.fails != "" {
			continue
		}
		for _, directory := range wanted.BinDirs {
			expectCanary(t, wanted.At(directory)+"/ADD", "CNI_CONTAINERID="+record.Canary, "CNI_PATH="+directory, "K8S_POD_NAMESPACE=mesh;K8S_POD_NAME=agent;K8S_POD_UID=1")
		}
	}
}

// expectCanary expects a recorded call with parts of an environment, and with the entry
// as the canary changes it.
func expectCanary(t *testing.T, file string, environment ...string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	for _, part := range environment {
		if !strings.Contains(string(content), part) {
			t.Errorf("%s: %s is missing in %s", file, part, content)
		}
	}
	var conf map[string]any
	if _, document, _ := strings.Cut(string(content), "\n{"); json.Unmarshal([]byte("{"+document), &conf) != nil {
		t.Errorf("%s: no configuration in %s", file, content)
	}
	if conf["name"] != "canary" || conf["excludeNamespaces"] != nil || conf["kubeconfig"] != "/var/lib/capture-cni/kubeconfig" {
		t.Errorf("%s: called with %s", file, content)
	}
}
