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
// namespace and in a mount namespace of its own, where nsswitch.conf is empty.
// iptables asks the name services for every numeric uid and gid: a slow or
// unreachable directory server would delay the pod. If the host refuses the mount
// namespace, the program runs in the host's.
func runWithoutNameServices(ctx context.Context, stdin []byte, path string, args ...string) error {
	netns, err := ns.GetCurrentNS()
	if err != nil {
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	defer netns.Close()
	done := make(chan error)
	go func() {
		// The thread is never unlocked: it ends with the goroutine, and its mount
		// namespace with it.
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

// hideNameServices mounts in a private namespace: the host does not see the mount.
func hideNameServices() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("/dev/null", "/etc/nsswitch.conf", "", unix.MS_BIND, "")
}
