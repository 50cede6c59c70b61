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

// Box is a machine of the test cluster: a process in namespaces of its own, and
// the ancestor of all other processes there. It sees the host's files, but what
// it writes below /etc, /opt and /var/lib goes to its disk, and its /run is
// empty. When its first process ends, the kernel ends all others.
type Box struct {
	Name    string
	PID     int    // of its first process
	Started string // start time of that process, in the kernel's form, since pids are reused

	dir string
}

// overlaid are the directories on the box's disk, as an overlay of the host's.
// The disk survives the end of the box.
var overlaid = []string{"/etc", "/opt", "/var/lib"}

// onDisk are directories on the box's disk without an overlay: runtimes mount
// overlays in them themselves, and overlays can't be nested.
var onDisk = []string{"/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet"}

// startBox starts a box whose disk is below dir. It forwards connections that
// listener accepts to an address inside the box; both are optional.
func startBox(name, dir string, listener *os.File, forward string) (*Box, error) {
	conf := boxConf{Name: name, Dir: filepath.Join(dir, name), Forward: forward}
	for _, directory := range append(overlaid, onDisk...) {
		for _, kind := range []string{"disk", "work"} {
			if err := os.MkdirAll(filepath.Join(conf.Dir, kind, flat(directory)), 0o755); err != nil {
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
	ready, signalReady, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	command := exec.Command("/proc/self/exe")
	command.Args = []string{boxCommand, string(text)}
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{signalReady}
	if listener != nil {
		command.ExtraFiles = append(command.ExtraFiles, listener)
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	err = errors.Join(command.Start(), signalReady.Close())
	if err != nil {
		return nil, fmt.Errorf("starting box %s: %w", name, err)
	}
	go func() { _ = command.Wait() }()
	if n, _ := ready.Read(make([]byte, 1)); n != 1 {
		output, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("starting box %s: %s", name, output)
	}
	b := &Box{Name: name, PID: command.Process.Pid, dir: conf.Dir}
	b.Started, err = startTime(b.PID)
	return b, err
}

// Path returns the host's path of a file in the box. /var/run is an absolute
// link, which would lead to the host's /run.
func (b *Box) Path(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", b.PID, strings.Replace(path, "/var/run/", "/run/", 1))
}

// Host returns the box's network namespace.
func (b *Box) Host() (*lab.Host, error) {
	netns, err := ns.GetNS(fmt.Sprintf("/proc/%d/ns/net", b.PID))
	if err != nil {
		return nil, fmt.Errorf("opening the network of %s: %w", b.Name, err)
	}
	return &lab.Host{NetNS: netns}, nil
}

// Command prepares a program to run inside the box.
func (b *Box) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", strconv.Itoa(b.PID), "--mount", "--pid", "--net", "--ipc", "--uts", "--wd=/", "--", name,
	}, args...)...)
}

// stop kills the box and waits until its first process is gone.
func (b *Box) stop() error {
	if !b.alive() {
		return nil
	}
	if err := syscall.Kill(b.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("stopping box %s: %w", b.Name, err)
	}
	for deadline := time.Now().Add(Timeout); b.alive(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("stopping box %s: process %d still runs", b.Name, b.PID)
		}
	}
	return nil
}

func (b *Box) alive() bool {
	started, err := startTime(b.PID)
	return err == nil && started == b.Started
}

// startTime returns when a process started, and an error if it does not exist or
// all of its threads have ended. See proc_pid_stat(5).
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", os.ErrNotExist
	}
	// The first thread of a killed process may end before others, which keep its ports.
	ended, threads := fields[0] == "Z" || fields[0] == "X", fields[17]
	if ended && (threads == "0" || threads == "1") {
		return "", os.ErrNotExist
	}
	return fields[19], nil
}

func flat(directory string) string { return strings.ReplaceAll(directory[1:], "/", "-") }
