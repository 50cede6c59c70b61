// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// dumps is a kernel that answers each request with the next of its dumps.
type dumps struct {
	rounds   []dump
	requests []syscall.NetlinkMessage
	read     int // messages
	sendErr  error
}

// dump is a list of names, of which one message says that the list has changed.
type dump struct {
	names       []string
	interrupted int        // index of that message, -1 for none; after the names: the end
	fault       unix.Errno // instead of the end
}

func (d *dumps) Send(request []byte) error {
	messages, err := syscall.ParseNetlinkMessage(request)
	d.requests = append(d.requests, messages...)
	return errors.Join(err, d.sendErr)
}

func (d *dumps) Close() {}

func (d *dumps) Receive(ctx context.Context, each func(syscall.NetlinkMessage) (bool, error)) error {
	if err := ctx.Err(); err != nil {
		return unix.EAGAIN
	}
	now := d.rounds[min(len(d.requests), len(d.rounds))-1]
	for i, name := range now.names {
		b := Batch{}
		b.Message(unix.NFT_MSG_NEWTABLE, 0, unix.NFPROTO_INET, func() { b.Text(unix.NFTA_TABLE_NAME, name) })
		m := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE}, Data: b.Content[unix.NLMSG_HDRLEN:]}
		if name == "" {
			m.Data = m.Data[:3]
		}
		if i == now.interrupted {
			m.Header.Flags |= unix.NLM_F_DUMP_INTR
		}
		d.read++
		if more, err := each(m); err != nil || !more {
			return err
		}
	}
	done := syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NLMSG_DONE}}
	if now.fault != 0 {
		done.Header.Type, done.Data = unix.NLMSG_ERROR, binary.NativeEndian.AppendUint32(nil, -uint32(now.fault))
	}
	if now.interrupted == len(now.names) {
		done.Header.Flags |= unix.NLM_F_DUMP_INTR
	}
	more, err := each(done)
	if more {
		err = errors.New("the end is not the end")
	}
	return err
}

// TestInterruptedDump lists tables while they change: a dump that the kernel interrupted
// is read again, and no part of one is taken for the whole.
func TestInterruptedDump(t *testing.T) {
	t.Parallel()
	whole := dump{[]string{"a", "b", "c"}, -1, 0}
	for _, tt := range []struct {
		rounds []dump
		sent   int
		want   []string
		err    error
	}{
		{[]dump{whole}, 1, whole.names, nil},
		{[]dump{{[]string{"a"}, 0, 0}, whole}, 2, whole.names, nil},
		{[]dump{{[]string{"a", "b"}, 0, 0}, {[]string{"a", "c"}, 1, 0}, whole}, 3, whole.names, nil},
		{[]dump{{[]string{"a"}, 1, 0}, whole}, 2, whole.names, nil},
		{[]dump{{[]string{"a"}, 0, 0}}, listAttempts, nil, ErrChanging},
	} {
		kernel := &dumps{rounds: tt.rounds}
		r := &Reader{ctx: t.Context(), socket: kernel}
		l := Listing{Family: unix.NFPROTO_INET, Request: unix.NFT_MSG_GETTABLE, Filter: Named(unix.NFTA_TABLE_NAME, "all"), What: "tables", Limit: 10}
		got, err := List(r, l, func(table Attributes) ([]string, error) {
			return []string{Text(table[unix.NFTA_TABLE_NAME])}, nil
		})
		if !slices.Equal(got, tt.want) || !errors.Is(err, tt.err) || len(kernel.requests) != tt.sent {
			t.Errorf("%v: got %v, %v after %d requests", tt.rounds, got, err, len(kernel.requests))
		}
		for i, request := range kernel.requests {
			object, err := parseMessage(request.Data)
			want := syscall.NlMsghdr{
				Len: 28, Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE,
				Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP, Seq: uint32(i + 1),
			}
			if request.Header != want || object[Family][0] != unix.NFPROTO_INET || Text(object[unix.NFTA_TABLE_NAME]) != "all" || err != nil {
				t.Errorf("request %d: %+v, %v, %v", i, request.Header, object, err)
			}
		}
	}
}

// TestListFails expects the limits of a list, and the errors of a kernel.
func TestListFails(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	failed := errors.New("failed")
	abc, more := []string{"a", "b", "c"}, "the network namespace holds more than "
	for name, tt := range map[string]struct {
		ctx    context.Context
		answer dump
		l      Listing
		twice  bool // each object has two results
		send   error
		want   string
		read   int
	}{
		"just of the limit":     {t.Context(), dump{abc, -1, 0}, Listing{Limit: 3, Bytes: 36}, false, nil, "[a b c]", 3},
		"more objects":          {t.Context(), dump{abc, -1, 0}, Listing{Limit: 2}, false, nil, more + "2 tables", 3},
		"more objects ahead":    {t.Context(), dump{abc, -1, 0}, Listing{Limit: 1}, false, nil, more + "1 tables", 2},
		"more bytes":            {t.Context(), dump{abc, -1, 0}, Listing{Limit: 3, Bytes: 35}, false, nil, more + "35 bytes of tables", 3},
		"just as many results":  {t.Context(), dump{abc[:2], -1, 0}, Listing{Limit: 2}, true, nil, "[a a b b]", 2},
		"more results":          {t.Context(), dump{abc, -1, 0}, Listing{Limit: 3}, true, nil, more + "3 tables", 3},
		"one object":            {t.Context(), dump{abc, -1, 0}, Listing{Limit: 1, Single: true}, false, nil, "[a]", 1},
		"no such table":         {t.Context(), dump{nil, -1, unix.ENOENT}, Listing{}, false, nil, "[]", 0},
		"it vanishes":           {t.Context(), dump{abc, -1, unix.ENOENT}, Listing{Limit: 3}, false, nil, "[]", 3},
		"not permitted":         {t.Context(), dump{abc, -1, unix.EPERM}, Listing{Limit: 3}, false, nil, "reading nftables: operation not permitted", 3},
		"an invalid request":    {t.Context(), dump{nil, -1, unix.EINVAL}, Listing{}, false, nil, "reading nftables: invalid argument", 0},
		"nothing is sent":       {t.Context(), dump{abc, -1, 0}, Listing{Limit: 3}, false, failed, "reading nftables: failed", 0},
		"the context has ended": {ended, dump{abc, -1, 0}, Listing{Limit: 3}, false, nil, "reading nftables: context canceled", 0},
		"a short message":       {t.Context(), dump{[]string{"a", "", "c"}, -1, 0}, Listing{Limit: 3}, false, nil, "reading nftables: a message of 3 bytes: expected at least 4", 2},
		"keep fails":            {t.Context(), dump{[]string{"a", "fails", "c"}, -1, 0}, Listing{Limit: 3}, false, nil, "failed", 2},
	} {
		kernel := &dumps{rounds: []dump{tt.answer}, sendErr: tt.send}
		tt.l.Request, tt.l.What = unix.NFT_MSG_GETTABLE, "tables"
		kept, err := List(&Reader{ctx: tt.ctx, socket: kernel}, tt.l, func(table Attributes) ([]string, error) {
			name := Text(table[unix.NFTA_TABLE_NAME])
			switch {
			case name == "fails":
				return nil, failed
			case tt.twice:
				return []string{name, name}, nil
			}
			return []string{name}, nil
		})
		got := fmt.Sprint(kept)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || kernel.read != tt.read || err != nil && kept != nil {
			t.Errorf("%s: got %s after %d messages, want %s after %d", name, got, kernel.read, tt.want, tt.read)
		}
		if tt.l.Single != (kernel.requests[0].Header.Flags&unix.NLM_F_DUMP == 0) {
			t.Errorf("%s: flags %#x", name, kernel.requests[0].Header.Flags)
		}
	}
}

// keeping is a kernel that keeps what it received, and has prepared its answers.
type keeping struct {
	content []byte
	answers Batch
	sendErr error
}

func (k *keeping) Send(messages []byte) error { k.content = messages; return k.sendErr }
func (k *keeping) Close()                     {}

func (k *keeping) Receive(_ context.Context, each func(syscall.NetlinkMessage) (bool, error)) error {
	messages, err := syscall.ParseNetlinkMessage(k.answers.Content)
	for _, m := range messages {
		if more, err := each(m); err != nil || !more {
			return err
		}
	}
	return err
}

// answer adds an answer about a message.
func (k *keeping) answer(kind uint16, sequence uint32, fault unix.Errno) {
	k.answers.Content = nlsocket.AppendMessage(k.answers.Content, kind, 0, sequence, binary.NativeEndian.AppendUint32(nil, -uint32(fault)))
}

// TestAnswers reads answers about the messages of a transaction up to the last one's, or that
// of the whole transaction. Other kinds of messages are none.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for want, prepare := range map[string]func(k *keeping){
		"<nil>": func(k *keeping) {
			k.answer(unix.NLMSG_NOOP, 2, unix.EPERM)
			k.answer(unix.NLMSG_ERROR, 2, 0)
			k.answer(unix.NLMSG_ERROR, 2, unix.EBUSY)
		},
		"operation not permitted": func(k *keeping) {
			k.answer(unix.NLMSG_ERROR, 1, unix.EPERM)
			k.answer(unix.NLMSG_ERROR, 2, unix.EBUSY)
		},
		"device or resource busy\nfile exists": func(k *keeping) {
			k.answer(unix.NLMSG_ERROR, 3, unix.EBUSY)
			k.answer(unix.NLMSG_ERROR, 3, unix.EBUSY)
			k.answer(unix.NLMSG_ERROR, 2, unix.EEXIST)
		},
		"no buffer space available": func(k *keeping) {
			k.sendErr = unix.ENOBUFS
			k.answer(unix.NLMSG_ERROR, 1, unix.EPERM)
		},
	} {
		batch, kernel := NewBatch(), &keeping{}
		batch.DeleteTable(InetTable("a"))
		prepare(kernel)
		if err := batch.Exchange(t.Context(), kernel); fmt.Sprint(err) != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

// TestUnfiltered finds a comment where an old kernel lists all tables' rules, within limits.
func TestUnfiltered(t *testing.T) {
	t.Parallel()
	var names keeping
	for i := range MaxChains + 1 {
		names.answers.AddChain(ours, strconv.Itoa(i), nil)
	}
	if _, err := ListChains(&Reader{ctx: t.Context(), socket: &names}); err == nil || err.Error() != "the network namespace holds more than 50000 chains" {
		t.Errorf("got error %v", err)
	}
	for name, tt := range map[string]struct {
		rules   int // of our chain
		comment string
		want    string
		err     string
	}{
		"ours":          {1, "why: ours", "why: ours", "<nil>"},
		"none":          {1, "other", "", "<nil>"},
		"just as many":  {MaxOurRules - 2, "why: ours", "why: ours", "<nil>"},
		"too many":      {MaxOurRules - 1, "why: ours", "", "the network namespace holds more than 5000 rules in chain base"},
		"too much text": {MaxOurRules - 2, "why: " + strings.Repeat("x", 1000), "", "the network namespace holds more than 4194304 bytes of rules in chain base"},
	} {
		kernel := &keeping{}
		for _, other := range []struct{ table, chain string }{{"theirs", "base"}, {"ours", "other"}} {
			kernel.answers.AddRule(InetTable(other.table), other.chain, "why: theirs", func() {})
		}
		for range tt.rules {
			kernel.answers.AddRule(ours, "base", tt.comment, func() {})
		}
		got, err := FindComment(&Reader{ctx: t.Context(), socket: kernel}, unix.NFPROTO_INET, "ours", "base", "why: ")
		if got != tt.want || fmt.Sprint(err) != tt.err {
			t.Errorf("%s: got %q, %v; want %q, %s", name, got, err, tt.want, tt.err)
		}
		request, err := parseMessage(kernel.content[unix.NLMSG_HDRLEN:])
		if err != nil || Text(request[unix.NFTA_RULE_TABLE]) != "ours" || Text(request[unix.NFTA_RULE_CHAIN]) != "base" {
			t.Errorf("%s: requested %v, %v", name, request, err)
		}
	}
	failed := errors.New("failed")
	if first, err := First([]string{"a"}, failed); first != "" || !errors.Is(err, failed) {
		t.Errorf("got %q, %v", first, err)
	}
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
