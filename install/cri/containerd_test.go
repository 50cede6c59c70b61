// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/cri"
)

// TestOracleContainerdSettings asks containerd itself, which runs with another file than
// the usual one. What it reports counts, whatever that file says.
func TestOracleContainerdSettings(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	containerd := lab.Part(t, "containerd")
	dir := machine.ShortDir(t)
	socket, file, log := dir+"/s", dir+"/config.toml", &lab.Log{}
	lab.Check(t, os.WriteFile(file, fmt.Appendf(nil, `version = 3
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = %[2]q
[plugins.'io.containerd.cri.v1.runtime'.cni]
conf_dir = "%[1]s/net.d"
bin_dirs = ["%[1]s/bin", "/usr/lib/cni"]
max_conf_num = 3
`, dir, socket), 0o600))
	command := exec.CommandContext(t.Context(), containerd, "--config", file)
	command.Stdout, command.Stderr = log, log
	lab.Check(t, command.Start())
	t.Cleanup(func() { _ = command.Wait() }) // killed, as the test's context ends first
	client, err := cri.New(socket)
	lab.Check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	lab.Eventually(t, func() error { _, err := client.Version(t.Context()); return err })
	usual := machine.New(t, map[string]string{
		"/etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/cni/net.d'\nbin_dirs = ['/opt/cni/bin']\n",
	})
	found, source := cri.ReadCNISettings(t.Context(), usual, client)
	want := cri.CNISettings{ConfDir: filepath.Join(dir, "net.d"), BinDirs: []string{filepath.Join(dir, "bin"), "/usr/lib/cni"}, MaxConfNum: new(3)}
	if diff := cmp.Diff(want, found); diff != "" || source != "the runtime's status" {
		t.Errorf("by %s, -want +got:\n%s\n%s", source, diff, log)
	}
}
