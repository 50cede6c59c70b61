// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"fmt"
	"runtime"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// runWithoutNameServices runs a program in the calling thread's network
// namespace and a mount namespace of its own, in which the host's name services
// are not configured: iptables asks them for every numeric uid and gid, and a
// directory server that is slow, or not reachable yet, would hold up the pod.
// Where the host does not allow that, the program runs without it.
func runWithoutNameServices(ctx context.Context, stdin []byte, path string, args ...string) error {
	netns, err := ns.GetCurrentNS()
	if err != nil {
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	defer netns.Close()
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and its mount
		// namespace with the thread.
		runtime.LockOSThread()
		if err := netns.Set(); err != nil {
			done <- fmt.Errorf("entering the network namespace: %w", err)
			return
		}
		_ = hideNameServices()
		_, err := run(ctx, stdin, path, args...)
		done <- err
	}()
	return <-done
}

// hideNameServices mounts only where nothing that it mounts can reach the host.
func hideNameServices() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("/dev/null", "/etc/nsswitch.conf", "", unix.MS_BIND, "")
}
