// SPDX-License-Identifier: Apache-2.0

package nlsocket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// dump is a request for all links.
var dump = AppendMessage(nil, unix.RTM_GETLINK, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, 7, make([]byte, unix.SizeofIfInfomsg))

func dial(t *testing.T, protocol int) Socket {
	t.Helper()
	s, err := Dial(protocol)
	lab.Check(t, err)
	t.Cleanup(s.Close)
	return s
}

// TestDump lists the namespace's links up to the end of the list, or until the caller has enough.
func TestDump(t *testing.T) {
	t.Parallel()
	stop := errors.New("enough")
	ended, end := context.WithCancel(t.Context())
	end()
	for name, tt := range map[string]struct {
		ctx  context.Context
		more bool
		err  error // of the caller
		want error
		seen int // messages, -1 for all
	}{
		"all": {t.Context(), true, nil, nil, -1}, "the first": {t.Context(), false, nil, nil, 1}, "an error": {t.Context(), true, stop, stop, 1},
		"the context has ended": {ended, true, nil, context.Canceled, 0},
	} {
		s, seen, names := dial(t, unix.NETLINK_ROUTE), 0, ""
		lab.Check(t, s.Send(dump))
		err := s.Receive(tt.ctx, func(m syscall.NetlinkMessage) (bool, error) {
			seen++
			names += string(m.Data)
			if m.Header.Seq != 7 {
				t.Errorf("%s: an answer to request %d", name, m.Header.Seq)
			}
			return tt.more && m.Header.Type != unix.NLMSG_DONE, tt.err
		})
		if !errors.Is(err, tt.want) || tt.seen >= 0 && seen != tt.seen || tt.seen < 0 && !bytes.Contains([]byte(names), []byte("lo\x00")) {
			t.Errorf("%s: got %v after %d messages", name, err, seen)
		}
	}
}

// TestAcknowledgement expects one of a few bytes for a message of any size, and an error where
// the kernel sends none.
func TestAcknowledgement(t *testing.T) {
	lab.RequireRoot(t) // the send buffer grows beyond the system's limit
	t.Parallel()
	for _, size := range []int{0, defaultSendBuffer - unix.NLMSG_HDRLEN, defaultSendBuffer, 9 << 20} {
		s := dial(t, unix.NETLINK_ROUTE)
		lab.Check(t, s.Send(AppendMessage(nil, 9999, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 1, make([]byte, size))))
		lab.Check(t, s.Receive(t.Context(), func(m syscall.NetlinkMessage) (bool, error) {
			if err := ErrorOf(m.Data); m.Header.Type != unix.NLMSG_ERROR || !errors.Is(err, unix.EOPNOTSUPP) || len(m.Data) != 4+unix.NLMSG_HDRLEN {
				t.Errorf("of %d bytes: got type %d, %d bytes, %v", size, m.Header.Type, len(m.Data), err)
			}
			return false, nil
		}))
	}
	runtime.LockOSThread()
	thread := unix.Gettid()
	go func() { // a signal interrupts a call that has a time-out, and the call is repeated
		for range 10 {
			time.Sleep(10 * time.Millisecond)
			_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)
		}
	}()
	if err := dial(t, unix.NETLINK_ROUTE).Receive(t.Context(), func(syscall.NetlinkMessage) (bool, error) { return true, nil }); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("without an answer: got error %v", err)
	}
}

// TestOtherSender refuses what another process, even root's, sends to the socket in the kernel's place.
func TestOtherSender(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	own, other := dial(t, unix.NETLINK_ROUTE), dial(t, unix.NETLINK_ROUTE)
	address, err := unix.Getsockname(own.fd)
	lab.Check(t, err)
	if err := unix.Sendto(other.fd, dump, 0, address); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("sending: got error %v", err)
	}
}

// TestNoSocket expects errors with what failed, and no socket that stays open.
func TestNoSocket(t *testing.T) {
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	if _, err := Dial(31); !errors.Is(err, unix.EPROTONOSUPPORT) || err.Error() != "opening netlink: protocol not supported" {
		t.Errorf("of no protocol: got error %v", err)
	}
	s, err := Dial(unix.NETLINK_ROUTE)
	lab.Check(t, err)
	s.Close()
	if err := s.Send(dump); !errors.Is(err, unix.EBADF) || err.Error() != "sending to netlink: bad file descriptor" {
		t.Errorf("of a closed socket: got error %v", err)
	}
	if err := s.Send(make([]byte, defaultSendBuffer+1)); err == nil || err.Error() != "preparing netlink for 65537 bytes: bad file descriptor" {
		t.Errorf("of a closed socket: got error %v", err)
	}
	if err := s.Receive(t.Context(), nil); err == nil || err.Error() != "receiving from netlink: bad file descriptor" {
		t.Errorf("of a closed socket: got error %v", err)
	}
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open) {
		t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(open), err)
	}
}

// TestMessages expects messages that another parser reads.
func TestMessages(t *testing.T) {
	t.Parallel()
	batch := AppendMessage(AppendMessage(nil, 1, 2, 3, []byte("abcde")), 4, 5, 6, []byte("abcd"))
	messages, err := syscall.ParseNetlinkMessage(batch)
	want := []syscall.NlMsghdr{{Len: 21, Type: 1, Flags: 2, Seq: 3}, {Len: 20, Type: 4, Flags: 5, Seq: 6}}
	if err != nil || len(messages) != 2 || messages[0].Header != want[0] || messages[1].Header != want[1] || len(batch) != 44 ||
		string(messages[0].Data) != "abcde" {
		t.Errorf("got %+v, %v", messages, err)
	}
	for _, tt := range []struct {
		body []byte
		want error
	}{
		{binary.NativeEndian.AppendUint32(nil, 0), nil},
		{[]byte{1, 2, 3}, nil},
		{binary.NativeEndian.AppendUint32(nil, 1), nil},
		{binary.NativeEndian.AppendUint32(nil, 0xffffffff), unix.EPERM},
		{nil, nil},
	} {
		if got := ErrorOf(tt.body); !errors.Is(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.body, got, tt.want)
		}
	}
}
