// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// batch is the number of messages that are sent together. All answers to a batch fit into a socket's
// buffer.
const batch = 64

// CreateEntries creates conntrack entries for the connections that have none. Existing entries stay,
// but that of an open connection gets the timeout and status of an open connection, because conntrack
// can have created the entry from a single segment.
func CreateEntries(ctx context.Context, connections []Connection) error {
	const flags = unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_EXCL
	var known []Connection
	err := change(ctx, messageNew, flags, connections, encodeNew, func(c Connection, err error) error {
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		if c.Stage == Open {
			known = append(known, c)
		}
		return nil
	})
	// The kernel also answers EEXIST if another entry has these addresses as the reply direction of a
	// translated connection. There is no entry to update then.
	err = errors.Join(err, change(ctx, messageNew, unix.NLM_F_REQUEST, known, encodeUpdate, exceptMissing[Connection]))
	if err != nil {
		return fmt.Errorf("creating conntrack entries: %w", err)
	}
	return nil
}

// DeleteEntries deletes conntrack entries, so that the next packet of each connection begins a new one.
// A missing entry is no error.
func DeleteEntries(ctx context.Context, entries []Entry) error {
	if err := change(ctx, messageDelete, unix.NLM_F_REQUEST, entries, encodeDelete, exceptMissing[Entry]); err != nil {
		return fmt.Errorf("deleting conntrack entries: %w", err)
	}
	return nil
}

// FlushEntries deletes all conntrack entries of the namespace.
func FlushEntries(ctx context.Context) error {
	err := change(ctx, messageDelete, unix.NLM_F_REQUEST, []byte{unix.AF_UNSPEC}, header, func(_ byte, err error) error { return err })
	if err != nil {
		return fmt.Errorf("deleting all conntrack entries: %w", err)
	}
	return nil
}

func exceptMissing[T any](_ T, err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// change sends a message for each item. If the kernel returns an error for an item, change continues with
// the other items, and finally returns the first error, with the number of failed items. refused returns
// nil if the error for an item does not count.
func change[T any](ctx context.Context, kind, flags uint16, items []T, encode func(T) []byte, refused func(T, error) error) error {
	s, err := nlsocket.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer s.Close()
	var failed int
	var first error
	for some := range slices.Chunk(items, batch) {
		var messages []byte
		for i, item := range some {
			with := flags
			if i == len(some)-1 {
				with |= unix.NLM_F_ACK // marks the end of the errors, which the kernel sends without this flag, too
			}
			messages = nlsocket.AppendMessage(messages, kind, with, uint32(i), encode(item))
		}
		if err := s.Send(messages); err != nil {
			return err
		}
		err := s.Receive(ctx, func(m syscall.NetlinkMessage) (more bool, err error) {
			i := int(m.Header.Seq)
			if m.Header.Type != unix.NLMSG_ERROR || i >= len(some) {
				return true, nil
			}
			if err := nlsocket.ErrorOf(m.Data); err != nil {
				if err = refused(some[i], err); err != nil {
					failed++
					first = cmp.Or(first, err)
				}
			}
			return i < len(some)-1, nil
		})
		if err != nil {
			return err
		}
	}
	if first != nil {
		return fmt.Errorf("%d of %d: %w", failed, len(items), first)
	}
	return nil
}
