// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// ErrChanging means that a list changed during each attempt to read it.
var ErrChanging = errors.New("the rules kept changing while they were read")

// Reader reads lists of nf_tables in the calling thread's namespace, within the limits of each Listing,
// until its context ends.
type Reader struct {
	ctx      context.Context
	socket   connection
	sequence uint32 // of the last request
}

// connection is a netlink socket or, if the kernel lacks nfnetlink, the type absent.
type connection interface {
	Send(messages []byte) error
	Receive(ctx context.Context, each func(m syscall.NetlinkMessage) (more bool, err error)) error
	Close()
}

func NewReader(ctx context.Context) (*Reader, error) {
	socket, err := dial()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return &Reader{ctx: ctx, socket: absent{}}, nil
	}
	if err != nil {
		return nil, err
	}
	return &Reader{ctx: ctx, socket: socket}, nil
}

func (r *Reader) Close() { r.socket.Close() }

// Listing describes a request for one of the kernel's lists, and the limits of the answer.
type Listing struct {
	Family  byte // 0 means all families
	Request uint16
	Filter  []filter
	Single  bool   // the filter names one object
	What    string // the objects' name in errors, in the plural
	Chain   string // for ListRules: the only chain to list, which sets What and Filter; "" for all chains
	Limit   int    // limit of the objects read, and of the results of keep
	Bytes   int    // limit in bytes; 0 means MaxBytes
}

// filter is an attribute with a name, by which the kernel filters a list. Older kernels ignore some
// filters, so in lists of rules and sets, the names in the answer are compared, too.
type filter struct {
	attribute uint16
	name      string
}

// Named returns a filter with one attribute. The filters of several calls can be concatenated.
func Named(attribute uint16, name string) []filter { return []filter{{attribute, name}} }

func (l Listing) message(sequence uint32) []byte {
	flags := uint16(unix.NLM_F_REQUEST)
	if !l.Single {
		flags |= unix.NLM_F_DUMP
	}
	b := Batch{sequence: sequence - 1}
	b.Message(l.Request, flags, l.Family, func() {
		for _, f := range l.Filter {
			b.Text(f.attribute, f.name)
		}
	})
	return b.Content
}

const listAttempts = 5

// List reads a list, and returns the results of keep for all objects, or none if the table or chain does
// not exist. If the list changes meanwhile, List reads it again, up to listAttempts times in all. After an
// error, the Reader is unusable. Errors: TooLarge, ErrChanging.
func List[T any](r *Reader, l Listing, keep func(object Attributes) ([]T, error)) ([]T, error) {
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

func listOnce[T any](r *Reader, l Listing, keep func(object Attributes) ([]T, error)) (kept []T, whole bool, err error) {
	r.sequence++
	if err := r.socket.Send(l.message(r.sequence)); err != nil {
		return nil, false, r.wrap(err)
	}
	whole = true
	objects, size, mostBytes := 0, 0, cmp.Or(l.Bytes, MaxBytes)
	var fault error // TooLarge, or an error of parseMessage or keep; wrap does not change it
	err = r.socket.Receive(r.ctx, func(m syscall.NetlinkMessage) (more bool, err error) {
		if m.Header.Flags&unix.NLM_F_DUMP_INTR != 0 { // the last message, NLMSG_DONE, can have this flag, too
			whole = false
		}
		switch m.Header.Type {
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			return false, nlsocket.ErrorOf(m.Data)
		}
		objects, size = objects+1, size+len(m.Data)
		switch {
		case objects > l.Limit || len(kept) > l.Limit:
			fault = TooLarge{l.What, l.Limit}
		case size > mostBytes:
			fault = TooLarge{"bytes of " + l.What, mostBytes}
		default:
			var some []T
			some, fault = keepObject(m.Data, keep)
			kept = append(kept, some...)
		}
		return fault == nil && !l.Single, nil
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

func keepObject[T any](message []byte, keep func(object Attributes) ([]T, error)) ([]T, error) {
	object, err := parseMessage(message)
	if err != nil {
		return nil, err
	}
	return keep(object)
}

// wrap describes the error of a request or, if the context has ended, the context's error.
func (r *Reader) wrap(err error) error {
	if ctxErr := r.ctx.Err(); ctxErr != nil {
		err = ctxErr
	}
	return fmt.Errorf("reading nftables: %w", err)
}

// ListRules lists the rules of a table or of a chain. It passes each rule to keep, with the chain's
// name.
func ListRules[T any](r *Reader, l Listing, table string, keep func(chain string, rule Attributes) ([]T, error)) ([]T, error) {
	l.Request, l.Filter = unix.NFT_MSG_GETRULE, Named(unix.NFTA_RULE_TABLE, table)
	if l.Chain != "" {
		l.What, l.Filter = "rules in chain "+l.Chain, append(l.Filter, Named(unix.NFTA_RULE_CHAIN, l.Chain)...)
	}
	return List(r, l, func(rule Attributes) ([]T, error) {
		chain := Text(rule[unix.NFTA_RULE_CHAIN])
		if Text(rule[unix.NFTA_RULE_TABLE]) != table || l.Chain != "" && l.Chain != chain {
			return nil, nil
		}
		return keep(chain, rule)
	})
}

// First returns the first of List's results, or the zero value if there is none.
func First[T any](found []T, err error) (first T, _ error) {
	if err != nil || len(found) == 0 {
		return first, err
	}
	return found[0], nil
}
