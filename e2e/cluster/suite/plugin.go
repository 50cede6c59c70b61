// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Plugin is the built plugin of kubectl.
type Plugin struct{ path, kubeconfig string }

// BuildPlugin builds the plugin of kubectl for this cluster.
func (c *Suite) BuildPlugin(t *testing.T) Plugin {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubectl-capture_cni")
	project, err := lab.Project(t.Context())
	lab.Check(t, err)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./deploy/kubectl-capture_cni")
	build.Dir = project
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the plugin of kubectl: %v\n%s", err, out)
	}
	return Plugin{path, c.Kubeconfig()}
}

// Command returns a command of the plugin.
func (p Plugin) Command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), p.path, append(args, "--kubeconfig", p.kubeconfig)...)
}

// Run returns the output and the exit status of a command.
func (p Plugin) Run(t *testing.T, args ...string) (out string, status int) {
	t.Helper()
	command := p.Command(t, args...)
	output, err := command.CombinedOutput()
	expectExit(t, err)
	return string(output), command.ProcessState.ExitCode()
}

// Output is Run with the output on stdout alone; the test logs what is on stderr.
func (p Plugin) Output(t *testing.T, args ...string) (out string, status int) {
	t.Helper()
	command := p.Command(t, args...)
	command.Stderr = t.Output()
	output, err := command.Output()
	expectExit(t, err)
	return string(output), command.ProcessState.ExitCode()
}

// expectExit fails the test for errors other than an exit status.
func expectExit(t *testing.T, err error) {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
}

// Expect runs a command until it has an exit status, and its output these texts, in lines of any length.
func (p Plugin) Expect(t *testing.T, command string, status int, want ...string) {
	t.Helper()
	lab.Eventually(t, func() error {
		out, got := p.Run(t, strings.Fields(command)...)
		for _, text := range want {
			if got != status || !Has(out, text) {
				return fmt.Errorf("%s: status %d, want %d and %q:\n%s", command, got, status, text, out)
			}
		}
		return nil
	})
}

// Has reports whether an output has a text, whose words can be in several lines.
func Has(output, text string) bool {
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	return strings.Contains(words(output), words(text))
}
