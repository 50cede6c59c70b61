// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// Time limits of a connection. A read from the API server may take 10 seconds.
const (
	connectionTimeout = 12 * time.Second
	requestTimeout    = time.Second
	endTimeout        = time.Second // once the agent ends
)

// serve answers one request.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, connectionTimeout)
	defer cancel()
	if uid, err := lookup.PeerUID(conn); err != nil || uid != os.Geteuid() {
		s.metrics.refused.WithLabelValues(reasonPeer).Inc()
		s.log.Debug("refusing a connection of another user", "uid", uid, "error", err)
		return
	}
	if err := s.answer(ctx, conn); err != nil {
		s.metrics.requests.WithLabelValues(sourceFault).Inc()
		s.log.Debug("answering a request of a pod failed", "error", err)
	}
}

func (s *Server) answer(ctx context.Context, conn net.Conn) error {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now().Add(endTimeout)) })()
	if _, err := conn.Write([]byte{lookup.Accepted}); err != nil {
		return fmt.Errorf("accepting the connection: %w", err)
	}
	document, err := lookup.ReadMessage(conn, lookup.MaxRequest)
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	request, err := parseRequest(document)
	if err != nil {
		return err
	}
	return lookup.WriteMessage(conn, s.answers.answer(ctx, request))
}
