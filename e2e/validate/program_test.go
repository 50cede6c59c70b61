// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/validate"
)

const (
	codeOutbound  = validate.CodeOutbound
	codeInbound   = validate.CodeInbound
	codePortInUse = validate.CodePortInUse
	codeNotTried  = validate.CodeNotTried
)

var (
	app   = syscall.Credential{Uid: 1000, Gid: 1000}
	proxy = syscall.Credential{Uid: 1337, Gid: 1337}
	users = map[string]syscall.Credential{"outbound": app, "inbound": proxy}
)

// image is a directory with only the agent, read-only for users.
var image string

func TestMain(m *testing.M) {
	code, err := inImage(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func inImage(m *testing.M) (code int, err error) {
	if image, err = os.MkdirTemp("", "image-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(image)
	if err := errors.Join(lab.Build(context.Background(), image, "./install/capture-cni-node"), os.Chmod(image, 0o555)); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// program is a running validation.
type program struct {
	command *exec.Cmd
	stderr  lab.Log
}

// start runs the validation in the pod as a user without capabilities.
func (p pod) start(t *testing.T, user syscall.Credential, args ...string) *program {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/capture-cni-node", append([]string{"validate"}, args...)...)
	command.Env = []string{} // not even PATH
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: image, Credential: &user}
	running := &program{command: command}
	command.Stderr = &running.stderr
	lab.Check(t, p.Do(command.Start))
	return running
}

// expect waits for the end of the program.
func (p *program) expect(t *testing.T, code int, texts ...string) {
	t.Helper()
	err := p.command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := p.command.ProcessState.ExitCode(); got != code {
		t.Errorf("%q: exit status %d, want %d:\n%s", p.command.Args[2:], got, code, p.stderr.String())
	}
	for _, text := range texts {
		if !strings.Contains(p.stderr.String(), text) {
			t.Errorf("%q: no %q in:\n%s", p.command.Args[2:], text, p.stderr.String())
		}
	}
}

func (p *program) waitFor(t *testing.T, text string) {
	t.Helper()
	lab.Eventually(t, func() error {
		if !strings.Contains(p.stderr.String(), text) {
			return fmt.Errorf("no %q in:\n%s", text, p.stderr.String())
		}
		return nil
	})
}
