// SPDX-License-Identifier: Apache-2.0

// Package lab creates network namespaces, connects them, and sends real packets between them, as any
// user and group. No packet leaves these namespaces.
package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The first thread of the process must never enter another namespace, because the plugin takes
// /proc/self/ns/net, which is that thread's namespace, for the host's.
func init() { runtime.LockOSThread() }

// Host is a network namespace with a path, at which the namespace is bind-mounted. Without NetNS, it is
// the namespace of the process, and needs no privilege.
type Host struct {
	NetNS ns.NetNS
	Wait  time.Duration // for a connection that the host makes; 0 for the time after which most tests call a packet dropped
}

// NewHost creates a namespace, in which lo is down, as the kernel creates it. Link-local addresses skip
// duplicate address detection. Otherwise, in the first two seconds, a host whose source address belongs
// to another interface could not resolve its neighbours' addresses.
func NewHost() (*Host, error) {
	prepared.Do(prepare)
	netns, err := testutils.NewNS()
	if err != nil {
		return nil, fmt.Errorf("creating a network namespace: %w", err)
	}
	h := &Host{NetNS: netns}
	if err := errors.Join(os.MkdirAll(owners, 0o755), os.WriteFile(h.owner(), nil, 0o644)); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	_ = h.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) }) // a kernel may lack IPv6
	return h, nil
}

// owners is a directory with a file for each namespace. The file's name begins with the pid of the
// test's process.
const owners = "/run/capture-cni-tests"

func (h *Host) owner() string {
	return fmt.Sprintf("%s/%d %s", owners, os.Getpid(), filepath.Base(h.Path()))
}

// sweep removes the namespaces that killed tests left. Otherwise the kernel's table of neighbours, which
// all namespaces share, would become full after some 700 namespaces.
func sweep() {
	files, _ := filepath.Glob(owners + "/*")
	for _, file := range files {
		pid, name, _ := strings.Cut(filepath.Base(file), " ")
		if _, err := os.Stat("/proc/" + pid); err != nil {
			path := "/var/run/netns/" + name
			_ = errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path), os.Remove(file))
		}
	}
}

// prepare must run before the first namespace is created. Package net detects the working IP families
// only once, in its first caller's namespace. In a new namespace, lo is down, so package net would find
// no IPv6.
func prepare() {
	sweep()
	if listener, err := net.Listen("tcp", "localhost:0"); err == nil {
		_ = listener.Close()
	}
}

var prepared sync.Once

// StartHost creates a Host for a test, and removes the Host at the end of the test. It needs root.
func StartHost(t testing.TB) *Host {
	t.Helper()
	RequireRoot(t)
	h, err := NewHost()
	Check(t, err)
	t.Cleanup(func() { Check(t, h.Close()) })
	return h
}

// Within runs f inside the namespace, and ends the test if f returns an error.
func (h *Host) Within(t testing.TB, f func() error) {
	t.Helper()
	Check(t, h.Do(f))
}

// Load makes the program nft load rules inside the namespace, as another program would.
func (h *Host) Load(t testing.TB, text string) {
	t.Helper()
	RequireProgram(t, "nft")
	h.Pipe(t, text, "nft", "-f", "-")
}

// Pipe runs a program inside the namespace, with text as its stdin.
func (h *Host) Pipe(t testing.TB, text, program string, args ...string) {
	t.Helper()
	h.Within(t, func() error {
		command := exec.CommandContext(t.Context(), program, args...)
		command.Stdin = strings.NewReader(text)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%s", out)
		}
		return err
	})
}

// Path returns the path of the namespace, which a runtime passes as CNI_NETNS.
func (h *Host) Path() string { return h.NetNS.Path() }

// Close removes the namespace and its content. It detaches the mount lazily, because a child process
// between fork and exec still has copies of all open files.
func (h *Host) Close() error {
	path := h.Path()
	return errors.Join(h.NetNS.Close(), unix.Unmount(path, unix.MNT_DETACH), os.Remove(path), os.Remove(h.owner()))
}

// Do runs f inside the namespace, on the calling goroutine's thread, except if that is the first thread
// of the process.
func (h *Host) Do(f func() error) (err error) {
	if h.NetNS == nil {
		return f()
	}
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() { // the first thread must stay in its namespace, so f runs on another thread meanwhile
		defer runtime.UnlockOSThread()
		done := make(chan error)
		go func() { done <- h.Do(f) }()
		return <-done
	}
	before, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer func() { _ = unix.Close(before) }()
		err = unix.Setns(int(h.NetNS.Fd()), unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering %s: %w", h.Path(), err)
	}
	defer func() {
		if left := unix.Setns(before, unix.CLONE_NEWNET); left != nil {
			err = errors.Join(err, fmt.Errorf("leaving %s: %w", h.Path(), left))
			return // the thread stays locked, and ends with the goroutine
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// Interface is one end of a veth pair.
type Interface struct {
	Host      *Host
	Name      string
	Addresses []string // such as 10.0.0.1/24
}

// Link connects two hosts by a veth pair, and brings both ends up.
func Link(a, b Interface) error {
	err := a.Host.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: a.Name},
			PeerName:      b.Name,
			PeerNamespace: netlink.NsFd(int(b.Host.NetNS.Fd())),
		})
	})
	if err != nil {
		return fmt.Errorf("creating a veth pair: %w", err)
	}
	return errors.Join(a.up(), b.up(), a.waitForCarrier(), b.waitForCarrier())
}

// waitForCarrier waits until the kernel has noticed that the other end is up, because the kernel drops
// packets that are sent earlier.
func (i Interface) waitForCarrier() error {
	return i.Host.Do(func() error {
		for range 500 {
			link, err := netlink.LinkByName(i.Name)
			if err != nil {
				return fmt.Errorf("finding %s: %w", i.Name, err)
			}
			if link.Attrs().OperState == netlink.OperUp {
				return nil
			}
			time.Sleep(2 * time.Millisecond)
		}
		return fmt.Errorf("waiting for %s: it has no carrier", i.Name)
	})
}

func (i Interface) up() error {
	return i.Host.Do(func() error {
		link, err := netlink.LinkByName(i.Name)
		if err != nil {
			return fmt.Errorf("finding %s: %w", i.Name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("bringing %s up: %w", i.Name, err)
		}
		for _, address := range i.Addresses {
			if err := addAddress(link, address); err != nil {
				return err
			}
		}
		return nil
	})
}

// AddAddresses adds addresses to an interface, and brings it up.
func (h *Host) AddAddresses(name string, addresses ...string) error {
	return Interface{h, name, addresses}.up()
}

// addAddress adds an address without duplicate address detection, which would take a second.
func addAddress(link netlink.Link, text string) error {
	address, err := netlink.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("parsing address %s: %w", text, err)
	}
	if address.IP.To4() == nil {
		address.Flags |= unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, address); err != nil {
		return fmt.Errorf("adding address %s: %w", text, err)
	}
	return nil
}

// AddDefaultRoute adds a default route via gateway.
func (h *Host) AddDefaultRoute(gateway string) error {
	return h.Do(func() error {
		if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}); err != nil {
			return fmt.Errorf("adding a default route via %s: %w", gateway, err)
		}
		return nil
	})
}
