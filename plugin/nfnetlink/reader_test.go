// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// dumps is a kernel that answers each request with the next of its dumps.
type dumps struct {
	rounds []dump
	sent   int
}

// dump is a list of names, of which one message says that the list has changed.
type dump struct {
	names       []string
	interrupted int // index of that message, -1 for none; after the names: the end
}

func (d *dumps) Send([]byte) error { d.sent++; return nil }
func (d *dumps) Close()            {}

func (d *dumps) Receive(_ context.Context, each func(syscall.NetlinkMessage) (bool, error)) error {
	now := d.rounds[min(d.sent, len(d.rounds))-1]
	for i, name := range now.names {
		b := Batch{}
		b.Message(unix.NFT_MSG_NEWTABLE, 0, unix.NFPROTO_INET, func() { b.Text(unix.NFTA_TABLE_NAME, name) })
		m := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE}, Data: b.Content[unix.NLMSG_HDRLEN:]}
		if i == now.interrupted {
			m.Header.Flags |= unix.NLM_F_DUMP_INTR
		}
		if more, err := each(m); err != nil || !more {
			return err
		}
	}
	done := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NLMSG_DONE}}
	if now.interrupted == len(now.names) {
		done.Header.Flags |= unix.NLM_F_DUMP_INTR
	}
	_, err := each(done)
	return err
}

// TestInterruptedDump lists tables while they change: a dump that the kernel interrupted
// is read again, and no part of one is taken for the whole.
func TestInterruptedDump(t *testing.T) {
	t.Parallel()
	whole := dump{[]string{"a", "b", "c"}, -1}
	for _, tt := range []struct {
		rounds []dump
		sent   int
		want   []string
		err    error
	}{
		{[]dump{whole}, 1, whole.names, nil},
		{[]dump{{[]string{"a"}, 0}, whole}, 2, whole.names, nil},
		{[]dump{{[]string{"a", "b"}, 0}, {[]string{"a", "c"}, 1}, whole}, 3, whole.names, nil},
		{[]dump{{[]string{"a"}, 1}, whole}, 2, whole.names, nil},
		{[]dump{{[]string{"a"}, 0}}, listAttempts, nil, ErrChanging},
	} {
		kernel := &dumps{rounds: tt.rounds}
		r := &Reader{ctx: t.Context(), socket: kernel}
		got, err := List(r, Listing{Request: unix.NFT_MSG_GETTABLE, What: "tables", Limit: 10}, func(table Attributes) ([]string, error) {
			return []string{Text(table[unix.NFTA_TABLE_NAME])}, nil
		})
		if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) || kernel.sent != tt.sent {
			t.Errorf("%v: got %v, %v after %d requests", tt.rounds, got, err, kernel.sent)
		}
	}
}

// keeping is a kernel that keeps what it received.
type keeping struct{ content []byte }

func (k *keeping) Send(messages []byte) error { k.content = messages; return nil }
func (k *keeping) Close()                     {}

func (k *keeping) Receive(context.Context, func(syscall.NetlinkMessage) (bool, error)) error {
	return nil
}

// TestAcknowledged expects the last message of a transaction to ask for an answer, with
// attributes that another parser reads.
func TestAcknowledged(t *testing.T) {
	t.Parallel()
	batch, kernel := NewBatch(), &keeping{}
	for _, name := range []string{"a", "b"} {
		batch.Message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_INET, func() {
			batch.Nested(unix.NFTA_RULE_EXPRESSIONS, func() { batch.Text(unix.NFTA_TABLE_NAME, name) })
		})
	}
	if err := batch.Exchange(t.Context(), kernel); err != nil {
		t.Fatal(err)
	}
	messages, err := syscall.ParseNetlinkMessage(kernel.content)
	if err != nil || len(messages) != 4 {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	for i, flags := range []uint16{unix.NLM_F_REQUEST, unix.NLM_F_REQUEST | unix.NLM_F_CREATE, unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_ACK, unix.NLM_F_REQUEST} {
		if got := messages[i].Header.Flags; got != flags {
			t.Errorf("message %d has flags %#x, want %#x", i, got, flags)
		}
	}
	outer, err := netlink.UnmarshalAttributes(messages[2].Data[4:])
	if err != nil || len(outer) != 1 || outer[0].Type&^unix.NLA_F_NESTED != unix.NFTA_RULE_EXPRESSIONS {
		t.Fatalf("%v, %v", outer, err)
	}
	inner, err := netlink.UnmarshalAttributes(outer[0].Data)
	if err != nil || len(inner) != 1 || inner[0].Type != unix.NFTA_TABLE_NAME || string(inner[0].Data) != "b\x00" {
		t.Errorf("%v, %v", inner, err)
	}
}
