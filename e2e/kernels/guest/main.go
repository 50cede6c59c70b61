// SPDX-License-Identifier: Apache-2.0

// Command guest is the first process of a guest: it makes a system that tests can run in,
// executes the job, and switches the machine off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/kernels"
)

func main() {
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // which ends qemu
}

func work() error {
	if err := mountAll(); err != nil {
		return err
	}
	var job kernels.Job
	content, err := os.ReadFile(kernels.JobFile)
	if err == nil {
		err = json.Unmarshal(content, &job)
	}
	if err != nil {
		return err
	}
	results, err := openResults(job.Results)
	if err != nil {
		return err
	}
	defer results.Close()
	if err := prepare(job); err != nil {
		return err
	}
	for _, run := range job.Runs {
		if err := execute(run, job.Environment, results); err != nil {
			return err
		}
	}
	return nil
}

// mountAll mounts what tests expect of a system.
func mountAll() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"devpts", "/dev/pts"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"tmpfs", "/var"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	return errors.Join(os.Chmod("/tmp", 0o1777), os.Symlink("/run", "/var/run"), os.MkdirAll("/var/lib", 0o755),
		os.Symlink("/proc/self/fd", "/dev/fd"))
}

// openResults opens the line to the host, on which each byte is passed as it is.
func openResults(path string) (*os.File, error) {
	results, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	line, err := unix.IoctlGetTermios(int(results.Fd()), unix.TCGETS)
	if err == nil {
		line.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(results.Fd()), unix.TCSETS, line)
	}
	return results, err
}

// prepare brings lo up, takes programs away, loads modules and sets sysctls.
func prepare(job kernels.Job) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	if err := takeAway(job.Lacking); err != nil {
		return err
	}
	for _, module := range job.Modules {
		if out, err := exec.Command("/usr/sbin/modprobe", module).CombinedOutput(); err != nil {
			return fmt.Errorf("loading %s: %w: %s", module, err, out)
		}
	}
	for name, value := range job.Sysctls {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

// takeAway leaves programs to containers.
func takeAway(patterns []string) error {
	if err := os.Mkdir(kernels.ContainerPrograms, 0o755); err != nil {
		return err
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join("/usr/sbin", pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			if err := os.Rename(path, filepath.Join(kernels.ContainerPrograms, filepath.Base(path))); err != nil {
				return err
			}
		}
	}
	return nil
}

// execute writes a run's output, and then how it ended.
func execute(run kernels.Run, environment []string, results io.Writer) error {
	command := exec.Command(run.Command[0], run.Command[1:]...)
	command.Dir = run.Directory
	command.Env = environment
	command.Stdout, command.Stderr = results, results
	began := time.Now()
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return fmt.Errorf("executing %s: %w", strings.Join(run.Command, " "), err)
	}
	line, err := json.Marshal(kernels.Ended{Status: command.ProcessState.ExitCode(), Took: time.Since(began)})
	if err == nil {
		_, err = fmt.Fprintf(results, "\n%s%s\n", kernels.EndMark, line)
	}
	return err
}
