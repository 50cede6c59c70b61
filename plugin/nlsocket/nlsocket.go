// SPDX-License-Identifier: Apache-2.0

// Package nlsocket sends and receives netlink messages in the network namespace of the calling thread.
// Its calls block the thread, because the kernel answers at once. In a process that lives for
// milliseconds, waiting by Go's network poller would take longer than the answer.
package nlsocket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is a netlink socket. It passes on one message at a time, so that its users can limit a dump, and
// read all answers to a batch.
type Socket struct{ fd int }

// receiveBuffer is a size in bytes. The kernel sends a dump in parts that are not larger.
const receiveBuffer = 32 << 10

// Dial opens a socket of a protocol, such as NETLINK_NETFILTER.
func Dial(protocol int) (Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return Socket{}, fmt.Errorf("opening netlink: %w", err)
	}
	s := Socket{fd}
	// The connection to the kernel keeps out messages that processes in the same network namespace send. The
	// timeout ends the wait for an answer that never arrives. NETLINK_CAP_ACK makes the kernel report errors
	// without a copy of the failed message's content.
	err = errors.Join(
		unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1))
	if err != nil {
		s.Close()
		return Socket{}, fmt.Errorf("preparing netlink: %w", err)
	}
	return s, nil
}

// Close closes the socket.
func (s Socket) Close() { _ = unix.Close(s.fd) }

// defaultSendBuffer is the number of bytes for which Send relies on the kernel's default send buffer, which
// is larger. For more bytes, Send enlarges the buffer.
const defaultSendBuffer = 64 << 10

// Send sends messages in one system call. The kernel has processed them when Send returns.
func (s Socket) Send(messages []byte) error {
	if len(messages) > defaultSendBuffer {
		if err := s.growSendBuffer(2 * len(messages)); err != nil {
			return fmt.Errorf("preparing netlink for %d bytes: %w", len(messages), err)
		}
	}
	if err := unix.Sendto(s.fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending to netlink: %w", err)
	}
	return nil
}

// growSendBuffer sets the size of the send buffer. If this process has the capability NET_ADMIN, the
// size can exceed the system's limit net.core.wmem_max.
func (s Socket) growSendBuffer(size int) error {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) == nil {
		return nil
	}
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
}

// Receive passes every received message to each, until each returns false, or an error occurs. The data
// of a message is valid only during the call of each.
func (s Socket) Receive(ctx context.Context, each func(m syscall.NetlinkMessage) (more bool, err error)) error {
	buffer := make([]byte, receiveBuffer)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, _, err := unix.Recvfrom(s.fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receiving from netlink: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return fmt.Errorf("parsing netlink messages: %w", err)
		}
		for _, m := range messages {
			if more, err := each(m); err != nil || !more {
				return err
			}
		}
	}
}

// AppendMessage appends a message to a batch.
func AppendMessage(batch []byte, kind, flags uint16, sequence uint32, body []byte) []byte {
	batch = AppendHeader(batch, uint32(unix.NLMSG_HDRLEN+len(body)), kind, flags, sequence)
	batch = append(batch, body...)
	return append(batch, make([]byte, -len(body)&(unix.NLMSG_ALIGNTO-1))...)
}

// AppendHeader appends the header of a message. length includes the header.
func AppendHeader(batch []byte, length uint32, kind, flags uint16, sequence uint32) []byte {
	order := binary.NativeEndian
	batch = order.AppendUint32(batch, length)
	batch = order.AppendUint16(batch, kind)
	batch = order.AppendUint16(batch, flags)
	batch = order.AppendUint32(batch, sequence)
	return order.AppendUint32(batch, 0)
}

// ErrorOf returns the error in a message of the type NLMSG_ERROR or NLMSG_DONE, or nil if the message
// reports success.
func ErrorOf(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}
