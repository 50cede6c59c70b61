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

// probePort is the port that Istio's validation uses. No service is known to use this port, so an
// annotation that excludes ports is unlikely to name it.
const probePort = 15002

// connectTimeout limits the attempt to connect, and then the wait for the response.
const connectTimeout = time.Second

// probe proves that one direction of one family is captured.
type probe struct {
	direction Direction
	family    Family
	to        netip.AddrPort
	*standIn

	proved bool
	err    error // of the last attempt
}

// attempt connects once, and writes the result to progress if it differs from the previous one.
func (p *probe) attempt(ctx context.Context, progress io.Writer) {
	previous := p.err
	p.err = p.try(ctx)
	p.proved = p.err == nil
	switch {
	case p.proved:
		fmt.Fprintf(progress, "%s %s: captured: a connection to %s arrived at %s\n", p.direction, p.family, p.to, p.Addr())
	case previous == nil || withoutAddresses(previous) != withoutAddresses(p.err):
		fmt.Fprintf(progress, "%s %s: not captured yet: %v\n", p.direction, p.family, p.err)
	}
}

// withoutAddresses returns the error's text without addresses and ports, because they differ between
// attempts with the same cause.
func withoutAddresses(err error) string {
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		err = operation.Err
	}
	return err.Error()
}

// unroutable reports whether the pod itself has no route to the destination, so that it sent no packet.
// The error of a TCP connection does not show that, because a router without a route causes the same
// error. To connect a UDP socket, the kernel looks up the route, but sends nothing.
func (p *probe) unroutable() bool {
	conn, err := net.Dial(p.family.network("udp"), p.to.String())
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

// try opens a new connection, because rules do not capture connections that are older than the rules.
// It returns nil if the response is the expected one, which only our listener can send.
func (p *probe) try(ctx context.Context) error {
	dialer := net.Dialer{Timeout: connectTimeout, Control: oneHop}
	conn, err := dialer.DialContext(ctx, p.family.network("tcp"), p.to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(connectTimeout)); err != nil {
		return fmt.Errorf("setting the deadline of the connection: %w", err)
	}
	want := p.response(p.to)
	got, err := io.ReadAll(io.LimitReader(conn, int64(len(want))+1))
	switch {
	case string(got) == want:
		return nil
	case err != nil:
		return fmt.Errorf("no response of our listener: %w", err)
	}
	return errors.New("unexpected response: not our listener")
}

// oneHop sets a TTL of 1, so that the first router drops the packets of an uncaptured connection. A
// captured connection still works, because its packets pass no router.
func oneHop(network, _ string, conn syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_TTL
	if network == IPv6.network("tcp") {
		level, option = unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS
	}
	var optionErr error
	err := conn.Control(func(fd uintptr) { optionErr = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, optionErr)
}
