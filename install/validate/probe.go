// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probePort is the one that Istio's validation uses: nobody leaves it out of
// capture, as nothing else does anything there.
const probePort = 15002

// patience is for one connection.
const patience = time.Second

// probe is one direction of one family.
type probe struct {
	direction Direction
	family    Family
	to        netip.AddrPort
	*standIn

	proved bool
	err    error // why the last try failed
}

// attempt tries once, and says so when something has changed.
func (p *probe) attempt(ctx context.Context, progress io.Writer) {
	before := p.err
	p.err = p.try(ctx)
	p.proved = p.err == nil
	switch {
	case p.proved:
		fmt.Fprintf(progress, "%s %s: captured: a connection to %s came in at %s\n", p.direction, p.family, p.to, p.Addr())
	case before == nil || kind(before) != kind(p.err):
		fmt.Fprintf(progress, "%s %s: not captured yet: %v\n", p.direction, p.family, p.err)
	}
}

// kind leaves out what differs from try to try, such as ports.
func kind(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) {
		err = operation.Err
	}
	return err.Error()
}

// untried tells that no packet can have left: a router that knows no way gives
// the same error, but only to what needs an answer.
func (p *probe) untried() bool {
	conn, err := net.Dial(p.family.udp(), p.to.String())
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

// try connects once, from a port of its own: a connection from before the rules
// is not captured by them. Only the stand-in knows how to answer.
func (p *probe) try(ctx context.Context) error {
	dialer := net.Dialer{Timeout: patience, Control: oneHop}
	conn, err := dialer.DialContext(ctx, p.family.tcp(), p.to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("limiting the wait for an answer: %w", err)
	}
	want := p.answer(p.to)
	got, err := io.ReadAll(io.LimitReader(conn, int64(len(want))+1))
	switch {
	case string(got) == want:
		return nil
	case err != nil:
		return fmt.Errorf("somebody else took the connection: %w", err)
	}
	return errors.New("somebody else answered")
}

// oneHop keeps what is not captured on the node: whoever forwards it first
// drops it. What is captured is not forwarded.
func oneHop(network, _ string, conn syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_TTL
	if network == IPv6.tcp() {
		level, option = unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS
	}
	var optionErr error
	err := conn.Control(func(fd uintptr) { optionErr = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, optionErr)
}
