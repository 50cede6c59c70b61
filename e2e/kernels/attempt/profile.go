// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// process is one of capture-cni-node.
type process struct {
	*exec.Cmd
	log *lab.Log
}

// start does what a runtime does for a container: it drops capabilities, forbids to gain
// any, and enters the profile, if there is one, with the last exec.
func start(profile, capabilities string, args ...string) (*process, error) {
	enter := `exec "$@"`
	if profile != "" {
		enter = `printf 'exec %s' "$0" >/proc/self/attr/apparmor/exec; ` + enter
	}
	command := exec.Command("setpriv", append([]string{
		"--bounding-set=" + capabilities, "--inh-caps=-all", "--no-new-privs", "sh", "-ec", enter, profile, program("capture-cni-node"),
	}, args...)...)
	p := &process{command, &lab.Log{}}
	command.Stdout, command.Stderr = p.log, p.log
	return p, command.Start()
}

func program(name string) string { return filepath.Join(os.Getenv(lab.BuiltPrograms), name) }

func (p *process) stop() {
	_ = p.Process.Signal(unix.SIGTERM)
	_ = p.Wait()
}

// label is the one that the kernel reports.
func (p *process) label() string {
	label, err := os.ReadFile(fmt.Sprintf("/proc/%d/attr/apparmor/current", p.Process.Pid))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(label))
}

// parse compiles profiles, and loads or removes them.
func parse(action, profiles string) error {
	command := exec.Command("apparmor_parser", "--skip-cache", action)
	command.Stdin = strings.NewReader(profiles)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("apparmor_parser %s: %w: %s", action, err, out)
	}
	return nil
}

// denials are lines of the kernel's log since the last call.
func denials() (lines []string) {
	buffer := make([]byte, 1<<20)
	n, _ := unix.Klogctl(unix.SYSLOG_ACTION_READ_CLEAR, buffer) // without a log, the test misses the lines
	for line := range strings.Lines(string(buffer[:max(0, n)])) {
		if _, denial, found := strings.Cut(line, `apparmor="DENIED" `); found {
			lines = append(lines, strings.TrimSpace(denial))
		}
	}
	return lines
}
