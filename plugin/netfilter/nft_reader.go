// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrChanging means that a list changed during each attempt to read it.
var ErrChanging = errors.New("the rules kept changing while they were read")

// reader reads nf_tables of the calling thread's namespace, within the limits and
// until its context ends.
type reader struct {
	ctx  context.Context
	conn *netlink.Conn
}

// messageBuffer is the size of the largest part of a list: the kernel sends at
// most 32 KiB at once, and less to a socket that reads less.
const messageBuffer = 32 << 10

func newReader(ctx context.Context) (*reader, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: messageBuffer})
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, errors.Join(fmt.Errorf("setting a deadline: %w", err), conn.Close())
		}
	}
	return &reader{ctx, conn}, nil
}

func (r *reader) close() { _ = r.conn.Close() } // nothing was written

// listing is a request for one of the kernel's lists.
type listing struct {
	family  byte // 0 is all
	request uint16
	filter  []netlink.Attribute
	single  bool   // one object, which the filter names
	what    string // names the objects in errors, in the plural
	limit   int    // of objects that are read, and of results that are kept
	bytes   int    // limit of bytes; 0 is maxBytes
}

func (l listing) message() (netlink.Message, error) {
	filter, err := netlink.MarshalAttributes(l.filter)
	if err != nil {
		return netlink.Message{}, fmt.Errorf("encoding a dump request: %w", err)
	}
	flags := netlink.Request
	if !l.single {
		flags |= netlink.Dump
	}
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | l.request), Flags: flags},
		Data:   append([]byte{l.family, unix.NFNETLINK_V0, 0, 0}, filter...),
	}, nil
}

const listAttempts = 5

// list reads a list and returns the results of keep for its objects. If the list
// changes meanwhile, it reads it again. After an error, the reader is unusable.
// Errors: TooLarge, ErrChanging.
func list[T any](r *reader, l listing, keep func(object attributes) ([]T, error)) ([]T, error) {
	for range listAttempts {
		kept, whole, err := listOnce(r, l, keep)
		if err != nil {
			return nil, err
		}
		if whole {
			return kept, nil
		}
	}
	return nil, ErrChanging
}

func listOnce[T any](r *reader, l listing, keep func(object attributes) ([]T, error)) (kept []T, whole bool, err error) {
	request, err := l.message()
	if err != nil {
		return nil, false, err
	}
	if _, err := r.conn.Send(request); err != nil {
		return nil, false, r.wrap(err)
	}
	whole = true
	objects, size, mostBytes := 0, 0, cmp.Or(l.bytes, maxBytes)
	for message, receiveErr := range r.conn.ReceiveIter() {
		objects, size = objects+1, size+len(message.Data)
		switch {
		case errors.Is(receiveErr, unix.ENOENT):
			return nil, true, nil // the table or chain does not exist
		case receiveErr != nil:
			return nil, false, r.wrap(receiveErr)
		case r.ctx.Err() != nil:
			err = r.wrap(r.ctx.Err())
		case objects > l.limit || len(kept) > l.limit:
			err = TooLarge{l.what, l.limit}
		case size > mostBytes:
			err = TooLarge{"bytes of " + l.what, mostBytes}
		case message.Header.Flags&netlink.DumpInterrupted != 0:
			whole = false
		}
		var object attributes
		var some []T
		if err == nil {
			object, err = parseMessage(message.Data)
		}
		if err == nil {
			some, err = keep(object)
		}
		if err != nil {
			r.close() // else the library reads the rest of the list
			return nil, false, err
		}
		kept = append(kept, some...)
	}
	return kept, whole, nil
}

// wrap returns the error of a request, or the context's if that has ended.
func (r *reader) wrap(err error) error {
	if ctxErr := r.ctx.Err(); ctxErr != nil {
		err = ctxErr
	}
	return fmt.Errorf("reading nftables: %w", err)
}

// listRules lists the rules of a table, which keep gets with their chains.
func listRules[T any](r *reader, l listing, table string, keep func(chain string, rule attributes) ([]T, error)) ([]T, error) {
	l.request, l.filter = unix.NFT_MSG_GETRULE, append(named(unix.NFTA_RULE_TABLE, table), l.filter...)
	return list(r, l, func(rule attributes) ([]T, error) {
		if text(rule[unix.NFTA_RULE_TABLE]) != table {
			return nil, nil
		}
		return keep(text(rule[unix.NFTA_RULE_CHAIN]), rule)
	})
}

// named returns an attribute that holds a name, as a filter or a part of one.
// Older kernels ignore some filters.
func named(attribute uint16, name string) []netlink.Attribute {
	return []netlink.Attribute{{Type: attribute, Data: []byte(name + "\x00")}}
}

// first returns the first of the results of a list, "" if there is none.
func first(found []string, err error) (string, error) {
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

// Generation returns the number of commits to nf_tables in the calling thread's
// namespace, by any program: while it is unchanged, so is every rule.
func Generation(ctx context.Context) (uint32, error) {
	r, err := newReader(ctx)
	if err != nil {
		return 0, err
	}
	defer r.close()
	found, err := list(r, listing{request: unix.NFT_MSG_GETGEN, single: true, what: "generations", limit: 1}, func(m attributes) ([]uint32, error) {
		if id := m[unix.NFTA_GEN_ID]; len(id) == 4 {
			return []uint32{binary.BigEndian.Uint32(id)}, nil
		}
		return nil, nil
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading the generation of nf_tables: %w", err)
	case len(found) == 0:
		return 0, errors.New("reading the generation of nf_tables: the kernel returned none")
	}
	return found[0], nil
}
