// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

// TestConnections expects the client of each connection, and one connection within
// the namespace once.
func TestConnections(t *testing.T) {
	t.Parallel()
	const pod, peer = "192.0.2.2", "192.0.2.1"
	for name, tt := range map[string]struct {
		sockets []kernel.Socket
		want    []kernel.Connection
	}{
		"a listener": {[]kernel.Socket{{at("0.0.0.0:80"), at("0.0.0.0:0"), kernel.Listening, false, false, 0}}, nil},
		"to a listener of all addresses": {
			[]kernel.Socket{
				{at(pod + ":80"), at(peer + ":1024"), kernel.Established, false, false, 0},
				{at("[::]:80"), at("[::]:0"), kernel.Listening, false, false, 0},
			},
			[]kernel.Connection{{at(peer + ":1024"), at(pod + ":80"), kernel.Open}},
		},
		"to a listener of one address": {
			[]kernel.Socket{
				{at(pod + ":80"), at(peer + ":1024"), kernel.Established, true, false, 0}, // not yet accepted
				{at("127.0.0.1:80"), at("0.0.0.0:0"), kernel.Listening, false, false, 0},
				{at(pod + ":80"), at("0.0.0.0:0"), kernel.Listening, false, false, 0},
			},
			[]kernel.Connection{{at(peer + ":1024"), at(pod + ":80"), kernel.Open}},
		},
		"from the port of a listener elsewhere": {
			[]kernel.Socket{
				{at(pod + ":80"), at(peer + ":1024"), kernel.CloseWait, false, false, 0},
				{at("127.0.0.1:80"), at("0.0.0.0:0"), kernel.Listening, false, false, 0},
			},
			[]kernel.Connection{{at(pod + ":80"), at(peer + ":1024"), kernel.Open}},
		},
		"from the port of a listener": {
			[]kernel.Socket{
				{at(pod + ":80"), at(peer + ":1024"), kernel.SynSent, false, false, 0},
				{at("0.0.0.0:80"), at("0.0.0.0:0"), kernel.Listening, false, false, 0},
			},
			[]kernel.Connection{{at(pod + ":80"), at(peer + ":1024"), kernel.Requested}},
		},
		"to a listener of all addresses of IPv4": {
			[]kernel.Socket{
				{at(pod + ":80"), at(peer + ":1024"), kernel.Established, false, false, 0},
				{at("0.0.0.0:80"), at("0.0.0.0:0"), kernel.Listening, false, false, 0},
			},
			[]kernel.Connection{{at(peer + ":1024"), at(pod + ":80"), kernel.Open}},
		},
		"within the pod": {
			[]kernel.Socket{
				{at("[::1]:1024"), at("[::1]:80"), kernel.Established, false, false, 0},
				{at("[::1]:80"), at("[::1]:1024"), kernel.Established, false, false, 0},
				{at("[::]:80"), at("[::]:0"), kernel.Listening, false, false, 0},
			},
			[]kernel.Connection{{at("[::1]:1024"), at("[::1]:80"), kernel.Open}},
		},
		"within the pod, without a listener": {
			[]kernel.Socket{
				{at("[::1]:80"), at("[::1]:1024"), kernel.Established, false, false, 0},
				{at("[::1]:1024"), at("[::1]:80"), kernel.Established, false, false, 0},
			},
			[]kernel.Connection{{at("[::1]:80"), at("[::1]:1024"), kernel.Open}},
		},
		"half open": {
			[]kernel.Socket{
				{at(pod + ":80"), at(peer + ":1024"), kernel.SynReceived, true, false, 0},
				{at(pod + ":1025"), at(peer + ":80"), kernel.SynSent, false, false, 0},
			},
			[]kernel.Connection{
				{at(peer + ":1024"), at(pod + ":80"), kernel.Answered},
				{at(pod + ":1025"), at(peer + ":80"), kernel.Requested},
			},
		},
		"closing": {
			[]kernel.Socket{
				{at(pod + ":1025"), at(peer + ":80"), kernel.FinWait2, false, false, 0},
				{at(pod + ":1026"), at(peer + ":80"), kernel.FinWait2, true, false, 0},
				{at(pod + ":1027"), at(peer + ":80"), kernel.LastAck, true, false, 0},
				{at(pod + ":1028"), at(peer + ":80"), kernel.FinWait1, true, false, 0},
				{at(pod + ":1029"), at(peer + ":80"), kernel.Closing, true, false, 0},
			},
			[]kernel.Connection{
				{at(pod + ":1025"), at(peer + ":80"), kernel.Open},
				{at(pod + ":1026"), at(peer + ":80"), kernel.Ended},
				{at(pod + ":1027"), at(peer + ":80"), kernel.Ended},
				{at(pod + ":1028"), at(peer + ":80"), kernel.Ended},
				{at(pod + ":1029"), at(peer + ":80"), kernel.Ended},
			},
		},
	} {
		got := kernel.Connections(tt.sockets)
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// within runs f in a namespace of its own.
func within(t *testing.T, f func() error) {
	t.Helper()
	host := lab.StartHost(t)
	if err := errors.Join(host.AddAddresses("lo"), host.Do(f)); err != nil {
		t.Fatal(err)
	}
}

func all(kernel.Entry) bool { return true }

// TestCreate expects an entry with its stage's timeout for each connection.
func TestCreate(t *testing.T) {
	t.Parallel()
	connections := []kernel.Connection{
		{at("192.0.2.1:1"), at("192.0.2.2:80"), kernel.Open},
		{at("[2001:db8::1]:2"), at("[2001:db8::2]:80"), kernel.Open},
		{at("192.0.2.1:3"), at("192.0.2.2:80"), kernel.Requested},
		{at("192.0.2.1:4"), at("192.0.2.2:80"), kernel.Answered},
		{at("[2001:db8::1]:5"), at("[2001:db8::2]:80"), kernel.Ended},
	}
	timeouts := map[uint16]uint32{1: 432000, 2: 432000, 3: 120, 4: 60, 5: 120}
	within(t, func() error {
		if err := kernel.CreateEntries(t.Context(), connections); err != nil {
			return err
		}
		entries, complete, err := kernel.Entries(t.Context(), 5, all)
		if len(entries) != len(connections) || !complete {
			t.Errorf("%d entries, complete %v", len(entries), complete)
		}
		for _, e := range entries {
			want := timeouts[e.Client.Port()]
			if e.Timeout > want || e.Timeout < want-10 || e.Translated || e.TimeWait || e.Assured != (want == 432000 || e.Client.Port() == 5) {
				t.Errorf("%+v, want a timeout of %d seconds", e, want)
			}
		}
		one, complete, oneErr := kernel.Entries(t.Context(), 1, func(e kernel.Entry) bool { return e.Client.Port() == 3 })
		if len(one) != 1 || one[0].Client.Port() != 3 || !complete {
			t.Errorf("the one that is wanted: %+v, complete %v", one, complete)
		}
		return errors.Join(err, oneErr)
	})
}

// TestCreateExisting expects an existing entry to get the timeout of an open
// connection if the connection is open, and to stay as it is if it is half open.
func TestCreateExisting(t *testing.T) {
	t.Parallel()
	seen := []kernel.Connection{
		{at("192.0.2.1:1"), at("192.0.2.2:80"), kernel.Requested},
		{at("192.0.2.2:80"), at("192.0.2.1:2"), kernel.Requested}, // by its server's segment
		{at("192.0.2.1:3"), at("192.0.2.2:80"), kernel.Requested},
	}
	found := []kernel.Connection{
		{at("192.0.2.1:1"), at("192.0.2.2:80"), kernel.Open},
		{at("192.0.2.1:2"), at("192.0.2.2:80"), kernel.Open},
		{at("192.0.2.1:3"), at("192.0.2.2:80"), kernel.Requested},
	}
	within(t, func() error {
		if err := errors.Join(kernel.CreateEntries(t.Context(), seen), kernel.CreateEntries(t.Context(), found)); err != nil {
			return err
		}
		entries, _, err := kernel.Entries(t.Context(), 10, all)
		if len(entries) != len(seen) {
			t.Errorf("%d entries, want %d", len(entries), len(seen))
		}
		for _, e := range entries {
			if open := e.Client.Port() != 3; e.Assured != open || e.Timeout > 1000 != open {
				t.Errorf("%+v", e)
			}
		}
		return err
	})
}

// TestCreateMany sends several batches with two connections that the kernel
// refuses: it expects entries for the others, and an error with the number of
// refused ones.
func TestCreateMany(t *testing.T) {
	t.Parallel()
	const many = 1000
	var connections []kernel.Connection
	for i := range uint16(many) {
		connections = append(connections, kernel.Connection{
			Client: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), i+1), Server: at("192.0.2.2:80"), Stage: kernel.Open,
		})
	}
	connections[100].Server, connections[900].Server = at("[2001:db8::2]:80"), at("[2001:db8::2]:80") // of another family than the client
	within(t, func() error {
		err := kernel.CreateEntries(t.Context(), connections)
		if !errors.Is(err, unix.ERANGE) || err.Error() != "creating conntrack entries: 2 of 1000: numerical result out of range" {
			t.Errorf("got error %v", err)
		}
		entries, complete, err := kernel.Entries(t.Context(), many, all)
		if len(entries) != many-2 || !complete || err != nil {
			t.Errorf("%d entries, complete %v (%v)", len(entries), complete, err)
		}
		some, complete, err := kernel.Entries(t.Context(), 10, all)
		if len(some) != 10 || complete || err != nil {
			t.Errorf("%d entries of 10, complete %v (%v)", len(some), complete, err)
		}
		if err := kernel.DeleteEntries(t.Context(), some); err != nil {
			return err
		}
		if err := kernel.DeleteEntries(t.Context(), some); err != nil {
			t.Errorf("what is gone can't be deleted: %v", err)
		}
		if left, _, err := kernel.Entries(t.Context(), many, all); len(left) != many-12 || err != nil {
			t.Errorf("%d entries are left (%v)", len(left), err)
		}
		if err := kernel.FlushEntries(t.Context()); err != nil {
			return err
		}
		if left, _, err := kernel.Entries(t.Context(), many, all); len(left) > 0 || err != nil {
			t.Errorf("a flush leaves %v (%v)", left, err)
		}
		return nil
	})
}

// TestRefused expects errors that say what failed, of a thread that may change nothing and
// after the caller has cancelled.
func TestRefusedEntries(t *testing.T) {
	t.Parallel()
	connections := []kernel.Connection{{at("192.0.2.1:1"), at("192.0.2.2:80"), kernel.Open}}
	entries := []kernel.Entry{{Client: at("192.0.2.1:1"), Server: at("192.0.2.2:80")}}
	over, end := context.WithCancel(t.Context())
	end()
	list := func(ctx context.Context) error { return second(kernel.Entries(ctx, 1, all)) }
	within(t, func() error {
		for name, tt := range map[string]struct {
			call func(context.Context) error
			want string
		}{
			"create":  {func(ctx context.Context) error { return kernel.CreateEntries(ctx, connections) }, "creating conntrack entries: "},
			"delete":  {func(ctx context.Context) error { return kernel.DeleteEntries(ctx, entries) }, "deleting conntrack entries: "},
			"flush":   {kernel.FlushEntries, "deleting all conntrack entries: "},
			"list":    {list, "listing conntrack entries: "},
			"sockets": {func(ctx context.Context) error { return second(kernel.Sockets(ctx, 1)) }, "listing the namespace's TCP sockets: "},
		} {
			if err := tt.call(over); !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s, cancelled: %v", name, err)
			}
			if name == "sockets" { // which everybody may list
				continue
			}
			if err := unprivileged(func() error { return tt.call(t.Context()) }); !errors.Is(err, unix.EPERM) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s, unprivileged: %v", name, err)
			}
		}
		return nil
	})
}

// TestNoSocketIsLeft expects no descriptor of requests that have ended. It is not parallel to
// tests that open others.
func TestNoSocketIsLeft(t *testing.T) {
	within(t, func() error {
		before := lab.FileNames(t, "/proc/self/fd")
		err := kernel.FlushEntries(t.Context())
		_, _, listErr := kernel.Sockets(t.Context(), 1)
		if after := lab.FileNames(t, "/proc/self/fd"); len(after) > len(before) {
			t.Errorf("descriptors %q became %q", before, after)
		}
		return errors.Join(err, listErr)
	})
}

func second[T any](_ []T, _ bool, err error) error { return err }

// unprivileged calls f without CAP_NET_ADMIN, by the same thread.
func unprivileged(f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets, fewer [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	fewer = sets
	fewer[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &fewer[0]); err != nil {
		return err
	}
	err := f()
	if restored := unix.Capset(&header, &sets[0]); restored != nil {
		return restored
	}
	return err
}

// TestSockets expects no more sockets than the limit.
func TestSockets(t *testing.T) {
	t.Parallel()
	within(t, func() error {
		for i, network := range []string{"tcp4", "tcp4", "tcp6"} {
			listener, err := net.Listen(network, ":0")
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = listener.Close() })
			sockets, complete, err := kernel.Sockets(t.Context(), 1)
			if want := min(i+1, 1) + i/2; len(sockets) != want || complete != (i == 0) || err != nil {
				t.Errorf("%d sockets of %d, complete %v (%v)", len(sockets), i+1, complete, err)
			}
		}
		return nil
	})
}

func TestOrphans(t *testing.T) {
	t.Parallel()
	entry := func(client, server string) kernel.Entry {
		return kernel.Entry{Client: at(client), Server: at(server)}
	}
	sockets := []kernel.Socket{
		{Local: at("192.0.2.2:80"), Remote: at("192.0.2.1:1024")}, {Local: at("192.0.2.2:1025"), Remote: at("192.0.2.1:80")},
	}
	entries := []kernel.Entry{
		entry("192.0.2.1:1024", "192.0.2.2:80"), entry("192.0.2.2:1025", "192.0.2.1:80"),
		entry("192.0.2.1:1023", "192.0.2.2:80"), entry("192.0.2.1:1024", "192.0.2.2:81"),
	}
	want := entries[2:]
	got := kernel.Orphans(append([]kernel.Entry(nil), entries...), sockets)
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
}
