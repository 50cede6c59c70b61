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
	"sync"

	"golang.org/x/sys/unix"
)

// standIn listens at the proxy's port before the proxy starts. It answers each redirected connection
// with a secret and the connection's original destination.
type standIn struct {
	net.Listener
	secret  string
	serving sync.WaitGroup
}

func newStandIn(ctx context.Context, family Family, port uint16) (*standIn, error) {
	address := netip.AddrPortFrom(family.localhost(), port)
	listener, err := (&net.ListenConfig{}).Listen(ctx, family.network("tcp"), address.String())
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, &Failure{CodePortInUse, fmt.Errorf("port %d is in use: run validate before the proxy starts", port)}
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return nil, &Failure{CodeNotTried, fmt.Errorf("the pod has no %s: %w", family, err)}
	case err != nil:
		return nil, fmt.Errorf("listening at the proxy's port: %w", err)
	}
	s := &standIn{Listener: listener, secret: rand.Text()}
	s.serving.Go(s.serve)
	return s, nil
}

func (s *standIn) close() {
	_ = s.Close()
	s.serving.Wait()
}

// response returns the answer to a connection whose original destination is to.
func (s *standIn) response(to netip.AddrPort) string { return s.secret + " " + to.String() }

func (s *standIn) serve() {
	for {
		conn, err := s.Accept()
		if err != nil {
			return // the listener is closed
		}
		if to, err := originalDestination(conn.(*net.TCPConn)); err == nil {
			_, _ = io.WriteString(conn, s.response(to)) // the client checks the response
		}
		_ = conn.Close()
	}
}
