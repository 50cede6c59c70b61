// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newProbe returns a probe that connects to a listener directly.
func newProbe(t *testing.T, to net.Listener) *probe {
	t.Helper()
	s, err := newStandIn(t.Context(), IPv4, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return &probe{direction: Outbound, family: IPv4, to: to.Addr().(*net.TCPAddr).AddrPort(), standIn: s}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// TestUnexpectedResponse accepts no response but the stand-in's.
func TestUnexpectedResponse(t *testing.T) {
	listener := listen(t)
	p := newProbe(t, listener)
	for _, response := range []string{"", "hello", p.response(netip.MustParseAddrPort("192.0.2.1:1")), p.response(p.to) + "."} {
		go func() {
			if conn, err := listener.Accept(); err == nil {
				_, _ = conn.Write([]byte(response))
				_ = conn.Close()
			}
		}()
		if err := p.try(t.Context()); err == nil {
			t.Errorf("%q was accepted", response)
		}
	}
}

// TestDirect connects to the stand-in without redirection: it does not respond.
func TestDirect(t *testing.T) {
	p := newProbe(t, listen(t))
	p.to = p.Addr().(*net.TCPAddr).AddrPort()
	if err := p.try(t.Context()); err == nil {
		t.Error("a direct connection was accepted")
	}
}

// TestProgress writes a result once, though ports differ between attempts.
func TestProgress(t *testing.T) {
	listener := listen(t)
	p := newProbe(t, listener)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	for range 3 {
		p.attempt(t.Context(), &progress)
	}
	if !errors.Is(p.err, unix.ECONNREFUSED) || strings.Count(progress.String(), "\n") != 1 {
		t.Errorf("%v:\n%s", p.err, &progress)
	}
}

func TestPortInUse(t *testing.T) {
	port := uint16(listen(t).Addr().(*net.TCPAddr).Port)
	_, err := newStandIn(t.Context(), IPv4, port)
	var failure *Failure
	if !errors.As(err, &failure) || failure.Code != CodePortInUse {
		t.Errorf("got %v", err)
	}
	for want, err := range map[string]error{
		"listening as the application: ":   Serve(t.Context(), []uint{uint(port)}),
		"listening at the outbound port: ": Proxy{OutboundPort: port}.Run(t.Context()),
		"listening at the inbound port: ":  Proxy{InboundPort: port}.Run(t.Context()),
	} {
		if !errors.Is(err, unix.EADDRINUSE) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFailure(t *testing.T) {
	refused := &probe{family: IPv4, to: netip.MustParseAddrPort("127.0.0.1:1"), err: unix.ECONNREFUSED}
	for direction, want := range map[Direction]int{Outbound: CodeOutbound, Inbound: CodeInbound} {
		var failure *Failure
		err := Settings{Direction: direction}.failure([]*probe{refused})
		if !errors.As(err, &failure) || failure.Code != want {
			t.Errorf("%s: got %v, want code %d", direction, err, want)
		}
	}
}

// TestClose waits for the stand-in's goroutine.
func TestClose(t *testing.T) {
	for range 20 {
		s, err := newStandIn(t.Context(), IPv4, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.close()
		stacks := make([]byte, 1<<20)
		if stacks = stacks[:runtime.Stack(stacks, true)]; bytes.Contains(stacks, []byte("(*standIn).serve")) {
			t.Fatalf("the goroutine runs after close:\n%s", stacks)
		}
	}
}

// TestStopped returns when its context ends, before the budget does.
func TestStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s := Settings{Direction: Outbound, Families: OnlyIPv4, Destinations: DefaultDestinations(), Budget: time.Hour}
	var failure *Failure
	if err := Run(ctx, s, &bytes.Buffer{}); !errors.As(err, &failure) {
		t.Errorf("got %v", err)
	}
}
