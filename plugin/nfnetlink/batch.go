// SPDX-License-Identifier: Apache-2.0

// Package nfnetlink sends transactions and requests for lists to nf_tables by netlink, and limits the
// data that it reads. It works in the network namespace of the calling thread, and executes no program.
package nfnetlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// Batch is a transaction of nf_tables. The kernel commits all of its messages or none, acknowledges
// only the last message, as the Batch requests, and reports each message that fails.
type Batch struct {
	Content  []byte
	sequence uint32 // of the last message
	last     int    // offset of the last message
}

// beginSequence is the sequence number of the message that begins the transaction. In the kernel's
// answers, an error with this number is about the whole transaction.
const beginSequence = 1

func NewBatch() *Batch {
	b := &Batch{Content: make([]byte, 0, 64<<10)}
	b.control(unix.NFNL_MSG_BATCH_BEGIN)
	return b
}

// control appends a message that begins or ends the transaction.
func (b *Batch) control(kind uint16) {
	b.sequence++
	header := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	b.Content = nlsocket.AppendMessage(b.Content, kind, unix.NLM_F_REQUEST, b.sequence, header)
}

func (b *Batch) isEmpty() bool { return b.sequence == beginSequence }

// Message appends a message, whose attributes are those that write appends.
func (b *Batch) Message(kind, flags uint16, family byte, write func()) {
	b.sequence++
	b.last = len(b.Content)
	b.Content = nlsocket.AppendHeader(b.Content, 0, unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_REQUEST|flags, b.sequence)
	b.Content = append(b.Content, family, unix.NFNETLINK_V0, 0, 0) // struct nfgenmsg
	write()
	binary.NativeEndian.PutUint32(b.Content[b.last:], uint32(len(b.Content)-b.last))
}

// Bytes appends an attribute with data.
func (b *Batch) Bytes(kind uint16, data []byte) {
	b.attribute(kind, func() { b.Content = append(b.Content, data...) })
}

// Text appends an attribute with a text and a NUL.
func (b *Batch) Text(kind uint16, text string) {
	b.attribute(kind, func() { b.Content = append(append(b.Content, text...), 0) })
}

// Number appends an attribute with a number in network byte order.
func (b *Batch) Number(kind uint16, number uint32) {
	b.attribute(kind, func() { b.Content = binary.BigEndian.AppendUint32(b.Content, number) })
}

// Nested appends an attribute that contains the attributes that write appends.
func (b *Batch) Nested(kind uint16, write func()) { b.attribute(kind|unix.NLA_F_NESTED, write) }

// attribute appends an attribute, padded to 4 bytes. write appends its content. Header and content must be
// shorter than 64 KiB, because an attribute's length has 16 bits. See struct nlattr in linux/netlink.h.
func (b *Batch) attribute(kind uint16, write func()) {
	const header, alignment = 4, 4
	start := len(b.Content)
	b.Content = append(b.Content, make([]byte, header)...)
	binary.NativeEndian.PutUint16(b.Content[start+2:], kind)
	write()
	length := len(b.Content) - start
	binary.NativeEndian.PutUint16(b.Content[start:], uint16(length))
	for range -length & (alignment - 1) {
		b.Content = append(b.Content, 0)
	}
}

// Commit sends the transaction, unless it is empty. Errors: ErrUnanswered; the kernel's errors, which wrap
// a unix.Errno, with the chain, rule or set that the kernel refused to add.
func (b *Batch) Commit(ctx context.Context) error {
	if b.isEmpty() {
		return nil
	}
	socket, err := dial()
	if err != nil {
		return err
	}
	defer socket.Close()
	return b.Exchange(ctx, socket)
}

// Remove commits the deletions that queue adds to a transaction. If queue returns an error, Remove
// commits the earlier deletions, and returns the error. queue must not delete an object that does not
// exist, because the kernel aborts such a transaction, which takes an RCU grace period.
func Remove(ctx context.Context, queue func(context.Context, *Batch) error) error {
	b := NewBatch()
	err := queue(ctx, b)
	if commitErr := b.Commit(ctx); commitErr != nil {
		err = errors.Join(err, fmt.Errorf("removing our rules: %w", commitErr))
	}
	return err
}

// ErrUnanswered means that the kernel has processed a transaction, but its answer was lost, because the
// kernel had no memory for it, the context ended, or no answer arrived in time.
var ErrUnanswered = errors.New("the kernel's answer is lost")

// Exchange sends the transaction over a connection and reads the answers.
func (b *Batch) Exchange(ctx context.Context, socket connection) error {
	last := b.sequence
	flags := b.Content[b.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	b.control(unix.NFNL_MSG_BATCH_END)
	if err := socket.Send(b.Content); err != nil {
		return err
	}
	var faults, described []error
	err := socket.Receive(ctx, func(m syscall.NetlinkMessage) (more bool, err error) {
		if m.Header.Type != unix.NLMSG_ERROR {
			return true, nil
		}
		// Later messages with the same error usually follow from the first. For example, all rules of a
		// chain that could not be created fail.
		if fault := nlsocket.ErrorOf(m.Data); fault != nil && !slices.Contains(faults, fault) {
			faults, described = append(faults, fault), append(described, b.describe(m.Header.Seq, fault))
		}
		return m.Header.Seq != last && m.Header.Seq != beginSequence, nil
	})
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	return errors.Join(append(described, err)...)
}
