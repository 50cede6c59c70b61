// SPDX-License-Identifier: Apache-2.0

// Package protocol executes the built plugin as runtimes do: with libcni, with
// cnitool, and directly with any environment and stdin.
package protocol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// bin is the directory of the plugin, the reference plugins and cnitool.
var bin string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	programs, remove, err := lab.Programs()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	bin = programs
	return m.Run()
}

// call is one call of the plugin. A zero field gets the value that a runtime sends.
type call struct {
	command, netns, ifname, container, args, stdin string
	env                                            []string
	plugin                                         string // path; the one of these sources
}

const noArgs = "-"

// outcome is the result of a call.
type outcome struct {
	stdout, stderr string
	status         int
}

func (c call) prepare() *exec.Cmd {
	args := cmp.Or(c.args, "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID="+uid)
	if args == noArgs {
		args = ""
	}
	command := exec.Command(cmp.Or(c.plugin, filepath.Join(bin, "capture-cni")))
	command.Env = append([]string{
		"CNI_COMMAND=" + cmp.Or(c.command, "ADD"), "CNI_CONTAINERID=" + cmp.Or(c.container, "sandbox"),
		"CNI_NETNS=" + c.netns, "CNI_IFNAME=" + cmp.Or(c.ifname, "eth0"), "CNI_PATH=" + bin, "CNI_ARGS=" + args,
	}, c.env...)
	command.Stdin = strings.NewReader(c.stdin)
	return command
}

func (c call) run(t *testing.T) outcome {
	t.Helper()
	return finish(t, c.prepare())
}

func finish(t *testing.T, command *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return outcome{stdout.String(), stderr.String(), command.ProcessState.ExitCode()}
}

// cniError is the output of a failed call.
type cniError struct {
	CNIVersion string
	Code       int
	Msg        string
	Details    string
}

// fails expects one JSON document with the code and every text.
func (o outcome) fails(t *testing.T, code int, texts ...string) {
	t.Helper()
	var e cniError
	o.document(t, &e)
	if o.status == 0 || e.Code != code {
		t.Errorf("status %d, code %d, want %d: %s", o.status, e.Code, code, o.stdout)
	}
	for _, text := range texts {
		if !strings.Contains(e.Msg+e.Details, text) {
			t.Errorf("no %q in the error: %s", text, e.Msg)
		}
	}
}

// succeeds expects status 0 and one JSON document.
func (o outcome) succeeds(t *testing.T) map[string]any {
	t.Helper()
	if o.status != 0 {
		t.Fatalf("status %d: %s%s", o.status, o.stdout, o.stderr)
	}
	var result map[string]any
	o.document(t, &result)
	return result
}

// silent expects status 0 and an empty stdout.
func (o outcome) silent(t *testing.T) {
	t.Helper()
	if o.status != 0 || o.stdout != "" {
		t.Errorf("status %d, stdout %q, stderr %s", o.status, o.stdout, o.stderr)
	}
}

// document decodes stdout, which must be exactly one document.
func (o outcome) document(t *testing.T, into any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(o.stdout))
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("stdout %q: %v", o.stdout, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		t.Errorf("more than one document on stdout: %q", o.stdout)
	}
}

// conf returns our entry as stdin; extra holds more keys, each followed by a comma.
func (n node) conf(extra string) string {
	return fmt.Sprintf(`{"agentSocket": "", %s "cniVersion": "1.0.0", "name": "test", "type": "capture-cni", "lookupTimeout": "20s", "kubeconfig": %q}`, extra, n.kubeconfig)
}

// shortTimeout is conf with a lookupTimeout of three seconds: on a busy machine, the first
// attempt can take one.
func (n node) shortTimeout(extra string) string {
	return strings.Replace(n.conf(extra), `"20s"`, `"3s"`, 1)
}

// ruleset returns what nft lists in a namespace.
func ruleset(t *testing.T, host *lab.Host) string {
	t.Helper()
	var out []byte
	lab.Check(t, host.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "nft", "-s", "list", "ruleset").Output()
		return err
	}))
	return string(out)
}

func expectCaptured(t *testing.T, host *lab.Host, want bool) {
	t.Helper()
	if rules := ruleset(t, host); strings.Contains(rules, "redirect to :15001") != want {
		t.Errorf("captured is not %v:\n%s", want, rules)
	}
}
