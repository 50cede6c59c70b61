// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/guides"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Operator runs the commands of the guides in a shell: with the cluster's helm and kubectl,
// with the programs of make build, and in a directory that looks like the project's.
type Operator struct {
	dir     string
	environ []string
}

// helm adds to what an operator sets the image of this machine, and that all agents may be
// replaced at once.
const helm = `#!/bin/sh
case " $* " in
*" install capture-cni "* | *" upgrade capture-cni "*) set -- "$@" --set image.registry=test.local,image.repository=capture-cni/capture-cni,image.tag=` + release + `,image.pullPolicy=Never,maxUnavailable=100% ;;
esac
exec "$HELM" "$@"
`

// NewOperator returns an operator who administers the cluster.
func (c *Suite) NewOperator(t *testing.T) *Operator {
	t.Helper()
	requireCluster(t)
	dir, bin := t.TempDir(), t.TempDir()
	chart, err := cluster.Chart(t.Context())
	lab.Check(t, err)
	project := filepath.Dir(filepath.Dir(chart))
	for _, name := range []string{"README.md", "deploy", "e2e"} {
		lab.Check(t, os.Symlink(filepath.Join(project, name), filepath.Join(dir, name)))
	}
	for _, source := range []string{"deploy/kubectl-capture_cni", "install/capture-cni-node"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "./"+source)
		build.Dir = project
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", source, err, out)
		}
	}
	lab.Check(t, os.Symlink(filepath.Join(c.Dir, "bin", "kubectl"), filepath.Join(bin, "kubectl")))
	lab.Check(t, lab.WriteProgram(filepath.Join(bin, "helm"), []byte(helm)))
	parts, err := filepath.Abs(c.Parts)
	lab.Check(t, err)
	return &Operator{dir, append(c.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HELM="+filepath.Join(parts, "helm"))}
}

// Write writes a file of the operator's.
func (o *Operator) Write(t *testing.T, name, content string) {
	t.Helper()
	lab.Check(t, os.WriteFile(filepath.Join(o.dir, name), []byte(content), 0o600))
}

// Follow runs the commands of a guide's section, with values for the words that the guide
// leaves to the operator, and expects no failure and what the run wants in their output.
func (o *Operator) Follow(t *testing.T, run guides.Run, values map[string]string) {
	t.Helper()
	script, err := guides.Script(o.dir, run.Guide, run.Section)
	lab.Check(t, err)
	for word, value := range values {
		script = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllLiteralString(script, value)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*cluster.Timeout)
	defer stop()
	began := time.Now()
	shell := exec.CommandContext(ctx, "bash", "-e", "-x", "-c", script)
	shell.Dir, shell.Env = o.dir, o.environ
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%s, section %q: %v\n%s", run.Guide, run.Section, err, out)
	}
	t.Logf("%s, section %q: %s", run.Guide, run.Section, time.Since(began).Round(100*time.Millisecond))
	for _, want := range run.Want {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s, section %q: the output lacks %q:\n%s", run.Guide, run.Section, want, out)
		}
	}
}
