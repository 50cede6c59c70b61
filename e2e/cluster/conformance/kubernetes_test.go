// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Names of Kubernetes' specs.
const (
	network = `\[sig-network\].*\[Conformance\]`
	traffic = `\[sig-network\] (Services|Networking|HostPort).*\[Conformance\]`
	ofUDP   = `udp|DNS|HostPort` // no sidecar takes their traffic
)

// configuration is how the cluster is while specs run.
type configuration struct {
	name        string
	focus, skip string
	mode        string // of the chart; "" without it
	prepare     func(t *testing.T)
}

var configurations = []configuration{
	{name: "without", focus: network},
	{name: "auto", focus: network, mode: "auto"},
	{name: "insert", focus: traffic, mode: "insert"},
	{name: "owned", focus: traffic, mode: "owned"},
	{name: "agents-replaced", focus: traffic, mode: "auto", prepare: replaceAgents},
	{name: "meshed", focus: network, skip: ofUDP, mode: "auto", prepare: injectAll},
}

// TestKubernetes expects that Kubernetes' specs pass without this project, and with it: in each
// mode, while agents are replaced, and with every pod in the mesh.
func TestKubernetes(t *testing.T) {
	specs := kubernetes(t)
	for _, configuration := range configurations {
		t.Run(configuration.name, func(t *testing.T) {
			if c.UninstallChart(t); configuration.mode != "" {
				c.InstallChart(t, "mode="+configuration.mode)
			}
			if configuration.prepare != nil {
				configuration.prepare(t)
			}
			command := specs.command(t.Context(), configuration.name, configuration.focus, configuration.skip)
			expect(t, command, configuration.name)
		})
	}
}

// specs is Kubernetes' program of specs, with its flags.
type specs struct {
	program string
	flags   []string
}

// images are those of the specs of networks. They ask nginx and pause for nothing.
var images = regexp.MustCompile(`(?m)^test\.local/e2e/(agnhost|glibc-dns-testing|nginx|pause):.*$`)

// kubernetes gives Kubernetes' specs what they need on the cluster.
func kubernetes(t *testing.T) specs {
	t.Helper()
	registries := filepath.Join(c.Dir, "registries.yaml")
	lab.Check(t, os.WriteFile(registries, []byte("promoterE2eRegistry: test.local/e2e\ngcRegistry: test.local/e2e\n"), 0o644))
	s := specs{filepath.Join(c.Parts, "e2e.test"), []string{
		"--kubeconfig=" + c.Kubeconfig(), "--provider=local", "--kube-test-repo-list=" + registries, "--kubectl-path=" + filepath.Join(c.Dir, "bin", "kubectl"),
	}}
	all, err := exec.CommandContext(t.Context(), s.program, append(s.flags, "--list-images")...).Output()
	lab.Check(t, err)
	lab.Check(t, c.LoadConformanceImages(t.Context(), fetched, "pause", images.FindAllString(string(all), -1)...))
	lab.Check(t, c.StartNameServer(t.Context()))
	return s
}

// command runs the specs whose names match focus and not skip, four at once: they mostly wait.
func (s specs) command(ctx context.Context, name, focus, skip string) *exec.Cmd {
	args := []string{"--procs=4", "--no-color", "--timeout=2h", "--output-dir=" + c.Dir, "--json-report=" + name + ".json", "--focus=" + focus}
	if skip != "" {
		args = append(args, "--skip="+skip)
	}
	return exec.CommandContext(ctx, filepath.Join(c.Parts, "ginkgo"), append(append(args, s.program, "--"), s.flags...)...)
}

// replaceAgents replaces all agents again and again until the test ends.
func replaceAgents(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	rounds := make(chan int)
	go func() {
		count := 0
		defer func() { rounds <- count }()
		for ; ctx.Err() == nil; count++ {
			for _, action := range [][]string{{"restart"}, {"status", "--timeout=" + cluster.Timeout.String()}} {
				if _, err := c.Kubectl(ctx, "", append([]string{"--namespace=" + cluster.Namespace, "rollout", action[0], "daemonset/capture-cni-node"}, action[1:]...)...); err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		count := <-rounds
		if t.Logf("agents were replaced %d times", count); count == 0 {
			t.Error("no agent was replaced")
		}
	})
}

// injectAll puts every pod of the specs in the mesh that is not in its node's network, with a
// proxy that its clients do not notice, and expects that the plugin let none pass uncaptured.
func injectAll(t *testing.T) {
	lab.Check(t, c.RegisterInjector(t.Context(), "specs", "/inject-silent", "matchExpressions: [{key: e2e-run, operator: Exists}]"))
	expectAdds(t, `result="captured"`)
	before := adds(t, `result="passed"`)
	t.Cleanup(func() {
		if more := adds(t, `result="passed"`) - before; more > 0 {
			t.Errorf("%d pods were not captured", more)
		}
	})
	t.Cleanup(func() { c.MustKubectl(t, "delete", "mutatingwebhookconfiguration", "specs") })
}
