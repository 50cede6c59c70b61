// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startDaemon starts a daemon in a box. Its output goes to a file of its name;
// its environment is this process's, with path in front of PATH.
func (b *Box) startDaemon(path, name string, args ...string) error {
	return b.startDaemonWith(nil, path, name, args...)
}

// startDaemonWith is startDaemon with further variables of the environment.
func (b *Box) startDaemonWith(variables []string, path, name string, args ...string) error {
	log, err := os.OpenFile(b.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := b.Command(context.Background(), filepath.Join(path, name), args...)
	command.Env = append(append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH")), variables...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	entered := command.Process.Pid
	go func() { _ = command.Wait() }()
	return os.WriteFile(b.pidFile(name), []byte(strconv.Itoa(entered)), 0o644)
}

func (b *Box) log(name string) string { return filepath.Join(b.dir, name+".log") }

// logEnd returns the last lines of a daemon's log.
func (b *Box) logEnd(name string) string {
	content, err := os.ReadFile(b.log(name))
	if err != nil {
		return err.Error()
	}
	const length = 4 << 10
	return string(content[max(0, len(content)-length):])
}

func (b *Box) pidFile(name string) string { return filepath.Join(b.dir, name+".pid") }

// pauseDaemon stops a daemon. The nsenter that waits for it stops itself then.
func (b *Box) pauseDaemon(name string) error {
	pid, err := b.pid(name)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGSTOP)
}

// resumeDaemon continues a daemon, and its nsenter.
func (b *Box) resumeDaemon(name string) error {
	entered, pid, err := b.pids(name)
	if err != nil {
		return err
	}
	return errors.Join(syscall.Kill(pid, syscall.SIGCONT), syscall.Kill(entered, syscall.SIGCONT))
}

// stopDaemon sends a signal to a daemon and waits until it has ended.
func (b *Box) stopDaemon(name string, signal syscall.Signal) error {
	pid, err := b.pid(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	for deadline := time.Now().Add(Timeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := startTime(pid); err != nil {
			return os.Remove(b.pidFile(name))
		}
	}
	return fmt.Errorf("stopping %s: it still runs after %s", name, Timeout)
}

// pid returns a daemon's pid on the host.
func (b *Box) pid(name string) (int, error) {
	_, pid, err := b.pids(name)
	return pid, err
}

// pids returns the pids on the host of the nsenter that startDaemon started, and of its
// child, the daemon.
func (b *Box) pids(name string) (entered, daemon int, err error) {
	content, err := os.ReadFile(b.pidFile(name))
	if err != nil {
		return 0, 0, fmt.Errorf("finding %s: %w", name, err)
	}
	if entered, err = strconv.Atoi(string(content)); err != nil {
		return 0, 0, fmt.Errorf("finding %s: %w", name, err)
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", entered, entered))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, fmt.Errorf("finding %s: %w", name, err)
	}
	fields := strings.Fields(string(children))
	if len(fields) != 1 {
		return 0, 0, fmt.Errorf("finding %s: it has ended; the end of its log:\n%s", name, b.logEnd(name))
	}
	daemon, err = strconv.Atoi(fields[0])
	return entered, daemon, err
}
