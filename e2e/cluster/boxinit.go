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

// boxCommand is the argv[0] with which a program that imports this package
// becomes the first process of a box.
const boxCommand = "capture-cni-box"

// boxConf is the first process's configuration.
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
	if err := initBox(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// initBox prepares the box and then reaps orphans until it is killed.
func initBox(text string) error {
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

// mount mounts the box's file systems. Mounts propagate between the box's own
// processes, as on a node, and not to the host.
func (c boxConf) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the box's mounts private: %w", err)
	}
	for _, directory := range overlaid {
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", directory, c.path("disk", directory), c.path("work", directory))
		if err := unix.Mount("overlay", directory, "overlay", 0, options); err != nil {
			return fmt.Errorf("overlaying %s: %w", directory, err)
		}
	}
	for _, directory := range onDisk {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(c.path("disk", directory), directory, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", directory, err)
		}
	}
	for _, directory := range []string{"/run", "/var/log"} {
		if err := unix.Mount("tmpfs", directory, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mounting an empty %s: %w", directory, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("making mounts shared in the box: %w", err)
	}
	return nil
}

func (c boxConf) path(kind, directory string) string {
	return filepath.Join(c.Dir, kind, flat(directory))
}

// forward accepts connections outside the box and connects inside.
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
			_ = lab.Relay(outside, inside) // the client sees its connection end
		}()
	}
}
