// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/capture-cni/capture-cni/install/report"
)

// freePort returns a port at which nothing listens.
func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

// addresses compares addresses.
var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

func loopback(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
}

// TestUncaptured connects without rules, while the server starts: the application alone
// answers, and the proxy forwards nothing that was not captured.
func TestUncaptured(t *testing.T) {
	t.Parallel()
	application, outbound, inbound := freePort(t), freePort(t), freePort(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	time.AfterFunc(clientRetryInterval, func() {
		go func() { ended <- Serve(ctx, []uint{uint(application)}) }()
		go func() { ended <- Proxy{Pod: "server", OutboundPort: outbound, InboundPort: inbound}.Run(ctx) }()
	})
	got := Connect(t.Context(), []netip.AddrPort{loopback(application), loopback(inbound)}, 8*clientRetryInterval)
	if lines := got[0].Lines; len(lines) != 1 || lines[0].By != report.TestApplication || !got[0].Answered() {
		t.Errorf("the application: %+v", got[0])
	}
	if want := (report.TestObservation{To: loopback(inbound), Fault: "the connection ended before the application answered"}); !cmp.Equal(got[1], want, addresses) {
		t.Errorf("the proxy: %+v", got[1])
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for _, port := range []uint16{application, outbound, inbound} {
		if o := try(t.Context(), loopback(port)); !strings.HasSuffix(o.Fault, ": connection refused") {
			t.Errorf("after the end: %+v", o)
		}
	}
}

// TestCancelled returns the only attempt of a client whose time is over before it connects.
func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if o := observe(ctx, loopback(1)); o.To != loopback(1) || !strings.HasSuffix(o.Fault, "operation was canceled") {
		t.Errorf("%+v", o)
	}
}

// TestReadLines returns the lines before an error.
func TestReadLines(t *testing.T) {
	t.Parallel()
	for err, answer := range map[string]io.Reader{
		"":                      strings.NewReader("{}\n{}"),
		"reading the answer: x": io.MultiReader(strings.NewReader("{}\n{}\n"), iotest.ErrReader(errors.New("x"))),
		"the answer does not come from a program of this test": strings.NewReader("{}\n{}\n{"),
	} {
		if lines, got := readLines(answer); len(lines) != 2 || (got != nil) != (err != "") || got != nil && got.Error() != err {
			t.Errorf("got %+v, %v, want error %q", lines, got, err)
		}
	}
}

// TestForeignAnswer reports a server that is none of this test.
func TestForeignAnswer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go accept(listener, func(conn *net.TCPConn) { _, _ = conn.Write([]byte("SSH-2.0\n")) })
	got := try(t.Context(), listener.Addr().(*net.TCPAddr).AddrPort())
	if got.Answered() || !strings.Contains(got.Fault, "not come from a program of this test") {
		t.Errorf("%+v", got)
	}
}
