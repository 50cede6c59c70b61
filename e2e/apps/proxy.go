// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// way is one of a sidecar's two: for what its pod sends, or gets.
type way struct {
	role        string
	transparent bool // connections come with their addresses (TPROXY), and go on with them
	inbound     bool
}

// proxy is a sidecar as the rules expect it: it hands every connection on to
// where it was going, and tells the client that it did.
func proxy(ctx context.Context) error {
	mesh := config.DefaultSettings().Mesh
	outbound, err := new(net.ListenConfig).Listen(ctx, "tcp", port(mesh.OutboundPort))
	if err != nil {
		return err
	}
	defer outbound.Close()
	go way{role: "outbound"}.accept(outbound)
	inbound, transparent, err := listenInbound(ctx, port(mesh.InboundPort))
	if err != nil {
		return err
	}
	defer inbound.Close()
	go way{role: "inbound", inbound: true, transparent: transparent}.accept(inbound)
	for _, network := range []string{"udp", "tcp"} {
		server, err := here.Serve(network, port(mesh.DNSPort), name("dns"))
		if err != nil {
			return err
		}
		defer server.Close()
	}
	return pause(ctx)
}

// listenInbound listens transparently if this process may: only under TPROXY
// does a sidecar have NET_ADMIN.
func listenInbound(ctx context.Context, address string) (listener net.Listener, transparent bool, err error) {
	config := net.ListenConfig{Control: lab.Transparent}
	if listener, err = config.Listen(ctx, "tcp", address); err == nil {
		return listener, true, nil
	}
	listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
	return listener, false, err
}

func port(number uint16) string { return fmt.Sprintf(":%d", number) }

func (w way) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = w.handOn(conn.(*net.TCPConn)) // the client sees its connection end
		}()
	}
}

func (w way) handOn(client *net.TCPConn) error {
	hop := lab.Answer{Server: name(w.role), Client: unmapped(client.RemoteAddr()), OriginalDst: unmapped(client.LocalAddr())}
	if !w.transparent {
		var err error
		if hop.OriginalDst, err = lab.OriginalDst(client); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(client).Encode(hop); err != nil {
		return err
	}
	if hop.OriginalDst == unmapped(client.LocalAddr()) && !w.transparent {
		return nil // it was for the proxy itself
	}
	application, err := dial(w.dialer(hop), "tcp", hop.OriginalDst.String())
	if err != nil {
		return err
	}
	defer application.Close()
	return lab.Relay(client, application)
}

// dialer makes the connection behind the proxy: an inbound one comes from the
// address that the rules let through, or from the client's own.
func (w way) dialer(hop lab.Answer) net.Dialer {
	d := net.Dialer{Timeout: patience}
	switch {
	case w.transparent:
		d.Control = lab.Marked
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(hop.Client.Addr(), 0))
	case w.inbound && hop.OriginalDst.Addr().Is4():
		d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 6)}
	case w.inbound:
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP("::6")}
	}
	return d
}

func unmapped(address net.Addr) netip.AddrPort {
	a := address.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
