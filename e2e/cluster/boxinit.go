// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// boxCommand is the name by which a program that uses this package becomes
// the first process of a box.
const boxCommand = "capture-cni-box"

// boxConf is what the first process is told.
type boxConf struct{ Name, Dir, Forward string }

// The files that it inherits.
const (
	readyFile    = 3
	listenerFile = 4
)

func init() {
	if os.Args[0] != boxCommand {
		return
	}
	if err := beFirst(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beFirst prepares the box and then buries orphans until it is killed.
func beFirst(text string) error {
	var conf boxConf
	if err := json.Unmarshal([]byte(text), &conf); err != nil {
		return err
	}
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := errors.Join(conf.mount(), unix.Sethostname([]byte(conf.Name)), (&lab.Host{}).AddAddresses("lo")); err != nil {
		return err
	}
	if conf.Forward != "" {
		listener, err := net.FileListener(os.NewFile(listenerFile, "listener"))
		if err != nil {
			return err
		}
		go forward(listener, conf.Forward)
	}
	ready := os.NewFile(readyFile, "ready")
	_, err := ready.Write([]byte{1})
	if err := errors.Join(err, ready.Close()); err != nil {
		return err
	}
	for range orphans {
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
				break
			}
		}
	}
	return nil
}

// mount makes the box's view of the files. Its mounts are shared among its own
// processes, as a node's are, and with nobody else.
func (c boxConf) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts in the box: %w", err)
	}
	for _, folder := range overlaid {
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, c.path("disk", folder), c.path("work", folder))
		if err := unix.Mount("overlay", folder, "overlay", 0, options); err != nil {
			return fmt.Errorf("overlaying %s: %w", folder, err)
		}
	}
	for _, folder := range onDisk {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(c.path("disk", folder), folder, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", folder, err)
		}
	}
	for _, folder := range []string{"/run", "/var/log"} {
		if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("emptying %s: %w", folder, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts in the box: %w", err)
	}
	return nil
}

func (c boxConf) path(kind, folder string) string { return filepath.Join(c.Dir, kind, flat(folder)) }

// forward takes connections outside the box and makes them inside.
func forward(listener net.Listener, to string) {
	for {
		outside, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer outside.Close()
			inside, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer inside.Close()
			_ = lab.Relay(outside, inside) // who connected sees the end of it
		}()
	}
}
