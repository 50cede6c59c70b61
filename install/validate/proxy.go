// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Proxy replaces the sidecar proxy in tests. It writes a TestLine to each captured connection, and
// forwards the connection to its original destination.
type Proxy struct {
	Pod                       string
	OutboundPort, InboundPort uint16
	Transparent               bool // inbound connections keep their addresses (TPROXY)
}

// Run accepts and forwards connections until ctx ends.
func (p Proxy) Run(ctx context.Context) error {
	outbound, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf(":%d", p.OutboundPort))
	if err != nil {
		return fmt.Errorf("listening at the outbound port: %w", err)
	}
	defer outbound.Close()
	listen := net.ListenConfig{}
	if p.Transparent {
		listen.Control = transparent
	}
	inbound, err := listen.Listen(ctx, "tcp", fmt.Sprintf(":%d", p.InboundPort))
	if err != nil {
		return fmt.Errorf("listening at the inbound port: %w", err)
	}
	defer inbound.Close()
	go accept(outbound, side{name: report.TestProxy(p.Pod, string(Outbound))}.forward)
	go accept(inbound, side{name: report.TestProxy(p.Pod, string(Inbound)), inbound: true, transparent: p.Transparent}.forward)
	<-ctx.Done()
	return nil
}

// accept handles connections until the listener is closed.
func accept(listener net.Listener, handle func(*net.TCPConn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			handle(conn.(*net.TCPConn))
		}()
	}
}

const connectionTimeout = 5 * time.Second

type side struct {
	name                 string
	inbound, transparent bool
}

func (s side) forward(client *net.TCPConn) {
	_ = client.SetDeadline(time.Now().Add(connectionTimeout)) // fails only for a closed connection
	line := report.TestLine{By: s.name, Client: address(client.RemoteAddr()).Addr(), Original: address(client.LocalAddr())}
	if !s.transparent {
		original, err := originalDestination(client)
		if err != nil || original == line.Original {
			return // the connection was not captured, and forwarding would lead back here
		}
		line.Original = original
	}
	server, err := s.dialer(line).Dial("tcp", line.Original.String())
	if err != nil {
		line.Fault = err.Error()
	}
	if json.NewEncoder(client).Encode(line) != nil || err != nil {
		return // the client sees the end of its connection
	}
	defer server.Close()
	_, _ = io.Copy(client, server) // copies one direction, because the client sends nothing
}

// dialer returns the dialer for the original destination. For inbound connections, it uses the source
// address that the rules exempt or, with TPROXY, the client's address.
func (s side) dialer(line report.TestLine) *net.Dialer {
	d := &net.Dialer{Timeout: connectionTimeout}
	switch {
	case s.transparent:
		d.Control, d.LocalAddr = marked, anyPort(line.Client)
	case s.inbound && line.Original.Addr().Is4():
		d.LocalAddr = anyPort(capture.ProxySourceIPv4.Addr())
	case s.inbound:
		d.LocalAddr = anyPort(capture.ProxySourceIPv6.Addr())
	}
	return d
}

func anyPort(a netip.Addr) net.Addr { return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0)) }

func address(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
