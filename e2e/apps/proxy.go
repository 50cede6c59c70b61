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

// direction is one of a sidecar's two: outbound or inbound.
type direction struct {
	role        string
	transparent bool // connections keep their addresses (TPROXY)
	inbound     bool
	silent      bool // the client gets no answer of the proxy
	plain       bool // connections to the application come from no address of the proxy's own
}

// proxy is a sidecar as the rules expect it: it forwards connections and answers DNS
// queries.
func proxy(ctx context.Context, silent, plain bool) error {
	for _, network := range []string{"udp", "tcp"} {
		server, err := podNetwork.Serve(network, port(config.DefaultSettings().Mesh.DNSPort), name("dns"))
		if err != nil {
			return err
		}
		defer server.Close()
	}
	return forward(ctx, silent, plain)
}

// forward forwards every captured connection to its original destination. Unless silent,
// it first sends the client an answer of its own.
func forward(ctx context.Context, silent, plain bool) error {
	mesh := config.DefaultSettings().Mesh
	outbound, err := new(net.ListenConfig).Listen(ctx, "tcp", port(mesh.OutboundPort))
	if err != nil {
		return err
	}
	defer outbound.Close()
	go direction{role: "outbound", silent: silent}.accept(outbound)
	inbound, transparent, err := listenInbound(ctx, port(mesh.InboundPort))
	if err != nil {
		return err
	}
	defer inbound.Close()
	go direction{role: "inbound", inbound: true, transparent: transparent, silent: silent, plain: plain}.accept(inbound)
	return pause(ctx)
}

// listenInbound listens transparently if this process is allowed to: a sidecar
// has NET_ADMIN only under TPROXY.
func listenInbound(ctx context.Context, address string) (listener net.Listener, transparent bool, err error) {
	config := net.ListenConfig{Control: lab.Transparent}
	if listener, err = config.Listen(ctx, "tcp", address); err == nil {
		return listener, true, nil
	}
	listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
	return listener, false, err
}

func port(number uint16) string { return fmt.Sprintf(":%d", number) }

func (w direction) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = w.forward(conn.(*net.TCPConn)) // the client sees its connection end
		}()
	}
}

func (w direction) forward(client *net.TCPConn) error {
	hop := lab.Answer{Server: name(w.role), Client: unmapped(client.RemoteAddr()), OriginalDst: unmapped(client.LocalAddr())}
	if !w.transparent {
		var err error
		if hop.OriginalDst, err = lab.OriginalDst(client); err != nil {
			return err
		}
	}
	if !w.silent {
		if err := json.NewEncoder(client).Encode(hop); err != nil {
			return err
		}
	}
	if hop.OriginalDst == unmapped(client.LocalAddr()) && !w.transparent {
		return nil // the connection was to the proxy itself
	}
	application, err := dial(w.dialer(hop), "tcp", hop.OriginalDst.String())
	if err != nil {
		return err
	}
	defer application.Close()
	return lab.Relay(client, application)
}

// dialer is for the connection to the original destination. An inbound one comes
// from the address that the rules exempt, or from the client's under TPROXY.
func (w direction) dialer(hop lab.Answer) net.Dialer {
	d := net.Dialer{Timeout: timeout}
	switch {
	case w.transparent:
		d.Control = lab.Marked
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(hop.Client.Addr(), 0))
	case w.plain:
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
