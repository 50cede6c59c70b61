// SPDX-License-Identifier: Apache-2.0

// Package podnet makes one pod's network namespace hold what capture wants:
// the rules and the addresses they count on. It never works in the host's own
// namespace, and only under a lock on the pod's.
package podnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// ErrGone means that the namespace does not exist (any more).
var ErrGone = errors.New("the network namespace does not exist")

// Namespace is a pod's network namespace, open and locked.
type Namespace struct{ netns ns.NetNS }

// Open opens the namespace at path and takes its lock, waiting as long as ctx
// allows. Errors: ErrGone; a capture.Refusal for the host's own namespace.
func Open(ctx context.Context, path string) (*Namespace, error) {
	netns, err := ns.GetNS(path)
	if err != nil {
		var gone ns.NSPathNotExistErr
		if errors.As(err, &gone) {
			return nil, fmt.Errorf("%w: %s", ErrGone, path)
		}
		return nil, fmt.Errorf("opening the network namespace: %w", err)
	}
	n := &Namespace{netns}
	if err := errors.Join(n.refuseHost(), n.lock(ctx)); err != nil {
		return nil, errors.Join(err, netns.Close())
	}
	return n, nil
}

// Close gives the lock back.
func (n *Namespace) Close() error { return n.netns.Close() }

// refuseHost compares with this process's own namespace and with that of the
// first process, which need not be readable or in the same place.
func (n *Namespace) refuseHost() error {
	for _, path := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		same, err := n.Is(path)
		if err != nil {
			return err
		}
		if same {
			return capture.Refusal(fmt.Sprintf("%s is the host's own network namespace: capturing there would cut off the node", n.netns.Path()))
		}
	}
	return nil
}

const lockPoll = 5 * time.Millisecond

// lock takes an advisory lock on the namespace's own file, so that it needs no
// place on disk and goes with the process.
func (n *Namespace) lock(ctx context.Context) error {
	for {
		err := unix.Flock(int(n.netns.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("locking the network namespace: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for another call in the same network namespace: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

// do runs f on a thread inside the namespace. That is a goroutine of its own,
// so a panic has to be caught here.
func (n *Namespace) do(f func() error) error {
	return n.netns.Do(func(ns.NetNS) (err error) {
		defer func() {
			if p := recover(); p != nil {
				fmt.Fprintf(os.Stderr, "%s\n", debug.Stack())
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		return f()
	})
}

// Addresses are all addresses of the namespace's interfaces.
func (n *Namespace) Addresses() ([]netip.Addr, error) {
	var addresses []netip.Addr
	err := n.do(func() error {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return fmt.Errorf("reading the pod's addresses: %w", err)
		}
		for _, a := range list {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				addresses = append(addresses, prefix.Addr())
			}
		}
		return nil
	})
	return addresses, err
}
