// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// standIn listens where the proxy will, and tells whoever comes where he wanted
// to go.
type standIn struct {
	net.Listener
	secret string
}

func newStandIn(ctx context.Context, family Family, port uint16) (*standIn, error) {
	address := netip.AddrPortFrom(family.localhost(), port)
	listener, err := (&net.ListenConfig{}).Listen(ctx, family.tcp(), address.String())
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, &Failure{CodePortInUse, fmt.Errorf("port %d is in use: has the proxy been started already? This has to run before it", port)}
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return nil, &Failure{CodeNotTried, fmt.Errorf("this pod has no %s: %w", family, err)}
	case err != nil:
		return nil, fmt.Errorf("listening in the proxy's place: %w", err)
	}
	s := &standIn{listener, rand.Text()}
	go s.serve()
	return s, nil
}

func (s *standIn) close() { _ = s.Close() }

// answer is what a client hears that was on its way to an address.
func (s *standIn) answer(to netip.AddrPort) string { return s.secret + " " + to.String() }

func (s *standIn) serve() {
	for {
		conn, err := s.Accept()
		if err != nil {
			return // closed
		}
		if to, err := originalDestination(conn.(*net.TCPConn)); err == nil {
			_, _ = io.WriteString(conn, s.answer(to)) // the client sees what it gets
		}
		_ = conn.Close()
	}
}
