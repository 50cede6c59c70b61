// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Box is a machine of the test cluster: a process in namespaces of its own,
// that all other processes of the machine are children of. It sees this
// machine's files, but what it writes below /etc, /opt and /var/lib is its
// own, and its /run is empty. Nothing of it outlives its first process.
type Box struct {
	Name    string
	PID     int    // of its first process
	Started string // when that was, in the kernel's words, since pids are used again

	dir string
}

// overlaid are the folders whose changes stay with the box; they survive its
// end, as a machine's disk does.
var overlaid = []string{"/etc", "/opt", "/var/lib"}

// onDisk are folders that can't lie on an overlay: containerd makes overlays
// in them itself.
var onDisk = []string{"/var/lib/containerd", "/var/lib/kubelet"}

// startBox starts a box whose disk is below dir. Connections that listener
// takes go to the address forward inside the box; both may be empty.
func startBox(name, dir string, listener *os.File, forward string) (*Box, error) {
	conf := boxConf{Name: name, Dir: filepath.Join(dir, name), Forward: forward}
	for _, folder := range append(overlaid, onDisk...) {
		for _, kind := range []string{"disk", "work"} {
			if err := os.MkdirAll(filepath.Join(conf.Dir, kind, flat(folder)), 0o755); err != nil {
				return nil, err
			}
		}
	}
	text, err := json.Marshal(conf)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(conf.Dir, "box.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ready, tell, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	command := exec.Command("/proc/self/exe")
	command.Args = []string{boxCommand, string(text)}
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{tell}
	if listener != nil {
		command.ExtraFiles = append(command.ExtraFiles, listener)
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	err = errors.Join(command.Start(), tell.Close())
	if err != nil {
		return nil, fmt.Errorf("starting box %s: %w", name, err)
	}
	go func() { _ = command.Wait() }()
	if n, _ := ready.Read(make([]byte, 1)); n != 1 {
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("starting box %s: %s", name, said)
	}
	b := &Box{Name: name, PID: command.Process.Pid, dir: conf.Dir}
	b.Started, err = startTime(b.PID)
	return b, err
}

// Path is where this machine sees a file of the box. /var/run, an absolute
// link, would lead back to this machine.
func (b *Box) Path(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", b.PID, strings.Replace(path, "/var/run/", "/run/", 1))
}

// Host is the box's network.
func (b *Box) Host() (*lab.Host, error) {
	netns, err := ns.GetNS(fmt.Sprintf("/proc/%d/ns/net", b.PID))
	if err != nil {
		return nil, fmt.Errorf("opening the network of %s: %w", b.Name, err)
	}
	return &lab.Host{NetNS: netns}, nil
}

// Command runs a program inside the box.
func (b *Box) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", strconv.Itoa(b.PID), "--mount", "--pid", "--net", "--ipc", "--uts", "--wd=/", "--", name,
	}, args...)...)
}

// stop ends the box and waits until nothing of it is left.
func (b *Box) stop() error {
	if !b.alive() {
		return nil
	}
	if err := syscall.Kill(b.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("ending box %s: %w", b.Name, err)
	}
	for deadline := time.Now().Add(Patience); b.alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("ending box %s: process %d is still there", b.Name, b.PID)
		}
	}
	return nil
}

func (b *Box) alive() bool {
	started, err := startTime(b.PID)
	return err == nil && started == b.Started
}

// startTime is when a process started; an error if there is none, or only what
// its parent has not asked about yet. See proc_pid_stat(5).
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", os.ErrNotExist
	}
	return fields[19], nil
}

func flat(folder string) string { return strings.ReplaceAll(folder[1:], "/", "-") }
