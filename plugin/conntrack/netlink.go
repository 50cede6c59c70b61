// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a netlink socket of the calling thread's namespace. Unlike
// mdlayher's, it returns a dump message by message, so that a long dump needs
// little memory, and reads every acknowledgement of a batch.
type socket struct{ fd int }

// receiveBuffer is the size of the largest part of a dump that the kernel sends.
const receiveBuffer = 64 << 10

func dial(protocol int) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return socket{}, fmt.Errorf("opening netlink: %w", err)
	}
	s := socket{fd}
	// The kernel answers at once: the timeout ends the wait for an answer that
	// never arrives. Acknowledgements arrive without a copy of the request.
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1))
	if err != nil {
		s.close()
		return socket{}, fmt.Errorf("preparing netlink: %w", err)
	}
	return s, nil
}

func (s socket) close() { _ = unix.Close(s.fd) }

func (s socket) send(messages []byte) error {
	if err := unix.Sendto(s.fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("sending to netlink: %w", err)
	}
	return nil
}

// receive calls each for every received message until each returns false.
func (s socket) receive(ctx context.Context, each func(m syscall.NetlinkMessage) (more bool, err error)) error {
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

// dump returns the parsed objects of a dump, at most most of them. complete reports
// whether these are all. It leaves out those for which parse returns false.
func dump[T any](ctx context.Context, protocol int, kind uint16, request []byte, most int, parse func(body []byte) (T, bool)) (found []T, complete bool, err error) {
	s, err := dial(protocol)
	if err != nil {
		return nil, false, err
	}
	defer s.close()
	if err := s.send(encodeMessage(nil, kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, 0, request)); err != nil {
		return nil, false, err
	}
	complete = true
	err = s.receive(ctx, func(m syscall.NetlinkMessage) (bool, error) {
		if m.Header.Type == unix.NLMSG_DONE || m.Header.Type == unix.NLMSG_ERROR {
			return false, errorOf(m.Data)
		}
		object, ok := parse(m.Data)
		if ok && len(found) == most {
			complete = false
		} else if ok {
			found = append(found, object)
		}
		return complete, nil
	})
	return found, complete, err
}

// encodeMessage appends a message to a batch.
func encodeMessage(batch []byte, kind, flags uint16, sequence uint32, body []byte) []byte {
	order := binary.NativeEndian
	batch = order.AppendUint32(batch, uint32(unix.NLMSG_HDRLEN+len(body)))
	batch = order.AppendUint16(batch, kind)
	batch = order.AppendUint16(batch, flags)
	batch = order.AppendUint32(batch, sequence)
	batch = order.AppendUint32(batch, 0)
	batch = append(batch, body...)
	return append(batch, make([]byte, -len(body)&(unix.NLMSG_ALIGNTO-1))...)
}

// errorOf returns the error in a message of the type NLMSG_ERROR or NLMSG_DONE.
func errorOf(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}
