// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// allFlags sets all values that become flags of the agent.
var allFlags = []string{
	"state=absent", "force=true", "apiServer=https://api.example:6443", "token.ttl=1h",
	"besideIstioCNI=true", "netconf.ipv6=always", "paths.binDirs={/a,/b}",
}

// TestAgentKnowsItsFlags runs the agent with the arguments and the environment that
// the chart renders: with --help, which parses the arguments, and as render, which
// reads and checks the environment.
func TestAgentKnowsItsFlags(t *testing.T) {
	t.Parallel()
	agent := agent(t)
	for _, values := range [][]string{{}, {"taint.remove=true", "netconf.backend=iptables-nft"}, {"token.onNode=false"}, allFlags, append([]string{"platform=openshift"}, allFlags...)} {
		set := daemonSet(t, values...)
		for _, container := range slices.Concat(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers) {
			for _, arguments := range [][]string{slices.Concat(container.Command[1:], container.Args, []string{"--help"}), {"render"}} {
				command := exec.CommandContext(t.Context(), agent, arguments...)
				for _, variable := range container.Env {
					command.Env = append(command.Env, variable.Name+"="+variable.Value)
				}
				if out, err := command.CombinedOutput(); err != nil {
					t.Errorf("%q, %s: %v\n%s", values, container.Name, err, out)
				}
			}
			expectVariables(t, agent, container)
		}
	}
}

// expectVariables wants each of the agent's variables to set a flag of its command.
func expectVariables(t *testing.T, agent string, container corev1.Container) {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), agent, container.Command[1], "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, variable := range container.Env {
		name, isFlag := strings.CutPrefix(variable.Name, "CAPTURE_CNI_")
		flag := "--" + strings.ToLower(strings.ReplaceAll(name, "_", "-")) + " "
		if isFlag && flag != "--scope " && !strings.Contains(string(help), flag) { // --scope is report's
			t.Errorf("container %s: %s sets no flag of %s", container.Name, variable.Name, container.Command[1])
		}
	}
}
