// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Ping sends an ICMP echo request from a thread without capabilities, and waits for the reply for at
// most limit.
func (h *Host) Ping(by Owner, to netip.Addr, limit time.Duration) error {
	domain, protocol, request := unix.AF_INET, unix.IPPROTO_ICMP, byte(8)
	if to.Is6() {
		domain, protocol, request = unix.AF_INET6, unix.IPPROTO_ICMPV6, 128
	}
	process, err := h.Start(by)
	if err != nil {
		return err
	}
	defer process.Close()
	err = h.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 65535"), 0o644) })
	if err != nil {
		return err
	}
	return process.Do(func() error {
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		timeout := unix.NsecToTimeval(limit.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			return err
		}
		if err := unix.Sendto(fd, []byte{request, 0, 0, 0, 0, 1, 0, 1}, 0, Sockaddr(netip.AddrPortFrom(to, 0))); err != nil {
			return err
		}
		return uninterrupted(func() error {
			_, _, err := unix.Recvfrom(fd, make([]byte, 64), 0)
			return err
		})
	})
}
