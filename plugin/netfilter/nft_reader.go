// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// ErrChanging means that a list changed during each attempt to read it.
var ErrChanging = errors.New("the rules kept changing while they were read")

// reader reads nf_tables of the calling thread's namespace, within the limits and
// until its context ends.
type reader struct {
	ctx      context.Context
	socket   connection
	sequence uint32 // of the last request
}

// connection is a netlink socket.
type connection interface {
	Send(messages []byte) error
	Receive(ctx context.Context, each func(m syscall.NetlinkMessage) (more bool, err error)) error
	Close()
}

func newReader(ctx context.Context) (*reader, error) {
	socket, err := dial()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return &reader{ctx: ctx, socket: absent{}}, nil
	}
	if err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, socket: socket}, nil
}

func (r *reader) close() { r.socket.Close() }

// listing is a request for one of the kernel's lists.
type listing struct {
	family  byte // 0 is all
	request uint16
	filter  []filter
	single  bool   // one object, which the filter names
	what    string // names the objects in errors, in the plural
	limit   int    // of objects that are read, and of results that are kept
	bytes   int    // limit of bytes; 0 is maxBytes
}

// filter is an attribute that holds a name. Older kernels ignore some filters.
type filter struct {
	attribute uint16
	name      string
}

// named returns a filter or a part of one.
func named(attribute uint16, name string) []filter { return []filter{{attribute, name}} }

func (l listing) message(sequence uint32) []byte {
	flags := uint16(unix.NLM_F_REQUEST)
	if !l.single {
		flags |= unix.NLM_F_DUMP
	}
	b := batch{sequence: sequence - 1}
	b.message(l.request, flags, l.family, func() {
		for _, f := range l.filter {
			b.text(f.attribute, f.name)
		}
	})
	return b.content
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
	r.sequence++
	if err := r.socket.Send(l.message(r.sequence)); err != nil {
		return nil, false, r.wrap(err)
	}
	whole = true
	objects, size, mostBytes := 0, 0, cmp.Or(l.bytes, maxBytes)
	var fault error // of this package, which wrap leaves alone
	err = r.socket.Receive(r.ctx, func(m syscall.NetlinkMessage) (more bool, err error) {
		if m.Header.Flags&unix.NLM_F_DUMP_INTR != 0 { // also of the last message, NLMSG_DONE
			whole = false
		}
		switch m.Header.Type {
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			return false, nlsocket.ErrorOf(m.Data)
		}
		objects, size = objects+1, size+len(m.Data)
		switch {
		case objects > l.limit || len(kept) > l.limit:
			fault = TooLarge{l.what, l.limit}
		case size > mostBytes:
			fault = TooLarge{"bytes of " + l.what, mostBytes}
		default:
			var some []T
			some, fault = keepObject(m.Data, keep)
			kept = append(kept, some...)
		}
		return fault == nil && !l.single, nil
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, true, nil // the table or chain does not exist
	case errors.Is(err, unix.EINVAL) && lacksNFTables(r.ctx):
		return nil, true, nil
	case err != nil:
		return nil, false, r.wrap(err)
	case fault != nil:
		return nil, false, fault
	}
	return kept, whole, nil
}

func keepObject[T any](message []byte, keep func(object attributes) ([]T, error)) ([]T, error) {
	object, err := parseMessage(message)
	if err != nil {
		return nil, err
	}
	return keep(object)
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
