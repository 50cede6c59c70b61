// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// everything sets all values that become flags of the agent.
var everything = []string{
	"state=absent", "force=true", "apiServer=https://api.example:6443", "token.ttl=1h",
	"netconf.ipv6=always", "paths.binDirs={/a,/b}",
}

// TestAgentKnowsItsFlags runs the agent with what the chart renders: as help,
// where flags are parsed, and as render, where they are checked.
func TestAgentKnowsItsFlags(t *testing.T) {
	agent := filepath.Join(t.TempDir(), "capture-cni-node")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", agent, "../install/capture-cni-node").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, values := range [][]string{{}, {"taint.remove=true", "taint.tryKernel=true"}, everything, append([]string{"platform=openshift"}, everything...)} {
		all := objects(t, values...)
		set := daemonSet(t, values...)
		container := set.Spec.Template.Spec.Containers[0]
		if !slices.Equal(container.Command, []string{"/capture-cni-node", "run"}) {
			t.Fatalf("the command is %q", container.Command)
		}
		if out, err := exec.CommandContext(t.Context(), agent, slices.Concat([]string{"run"}, container.Args, []string{"--help"})...).CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", values, err, out)
		}
		file := filepath.Join(t.TempDir(), "netconf.json")
		if err := os.WriteFile(file, []byte(netConf(t, all)), 0o600); err != nil {
			t.Fatal(err)
		}
		shared := slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool {
			flag, _, _ := strings.Cut(arg, "=")
			return slices.Contains([]string{"--state", "--force", "--listen", "--events", "--netconf", "--untaint", "--canary-kernel"}, flag) // run's own, and the file
		})
		if out, err := exec.CommandContext(t.Context(), agent, slices.Concat([]string{"render", "--netconf=" + file}, shared)...).CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", values, err, out)
		}
	}
}
