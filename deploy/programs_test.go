// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// The programs that tests of this package start, each of them built once.
var (
	agent    = program("../install/capture-cni-node")
	plugin   = program("kubectl-capture_cni")
	renderer = program("../e2e/helm")
)

var built string // the programs' directory

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "deploy-"); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(status)
}

// program returns a function that returns the program of a directory.
func program(source string) func(t *testing.T) string {
	build := sync.OnceValues(func() (string, error) {
		path := filepath.Join(built, filepath.Base(source))
		command := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".")
		command.Dir = source
		if out, err := command.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", source, err, out)
		}
		return path, nil
	})
	return func(t *testing.T) string {
		t.Helper()
		lab.RequireProgram(t, "go")
		path, err := build()
		lab.Check(t, err)
		return path
	}
}

var calls sync.Map // of helm, by their arguments

// helm renders or lints a chart, as Helm does with the same arguments: TestOracleHelm
// compares the two. Calls with the same arguments start it once.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path := renderer(t)
	call, _ := calls.LoadOrStore(strings.Join(args, "\n"), sync.OnceValues(func() (string, error) {
		out, err := exec.Command(path, args...).CombinedOutput()
		return string(out), err
	}))
	return call.(func() (string, error))()
}

// TestOracleHelm compares the renderer with Helm itself: it renders the same manifests, and
// refuses what Helm refuses.
func TestOracleHelm(t *testing.T) {
	real := lab.Part(t, "helm")
	compare := func(refused string, args ...string) {
		t.Helper()
		ours, err := helm(t, args...)
		out, realErr := exec.CommandContext(t.Context(), real, args...).CombinedOutput()
		theirs := strings.ReplaceAll(string(out), "\n\n---\n", "\n---\n") // as Helm 4 ends documents
		same := strings.ReplaceAll(ours, "\n\n---\n", "\n---\n") == theirs || args[0] == "lint"
		if (err == nil) != (realErr == nil) || err == nil && !same || !strings.Contains(theirs, refused) {
			t.Errorf("%q: %v from the renderer, %v from Helm:\n%.400s\n%.400s", args, err, realErr, ours, theirs)
		}
	}
	values := append([]string{"", "metrics.dashboard.enabled=true"}, profiles...)
	for _, platform := range platforms {
		values = append(values, "platform="+platform)
		compare("", "lint", "--strict", "--set", "platform="+platform, chart)
	}
	for _, value := range values {
		compare("", template(value)...)
	}
	compare("", template(`affinity={"podAntiAffinity": {}}`)...)
	compare("", "template", "any", chart, "--namespace", "kube-system", "--kube-version", "1.29.0")
	for _, enabled := range []string{"true", "false"} { // without a version of Kubernetes, each Helm takes its own
		compare("", "template", "any", umbrella(t), "--kube-version", "1.34.0", "--set", "capture-cni.enabled="+enabled)
	}
	compare("incompatible with Kubernetes", "template", "any", chart, "--kube-version", "1.24.0")
	compare("nothing", "lint", "--strict", "--set", "nothing=1", chart)
	for _, refusal := range refusals {
		compare(refusal.errContains, template(refusal.value)...)
	}
}
