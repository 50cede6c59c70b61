// SPDX-License-Identifier: Apache-2.0

package main

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of the HTTP servers. Each process of the node reaches them, and each pod where
// --listen is an address of the node.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second // to read a request, and to write the answer
	maxHeader      = 8 << 10          // bytes
	maxConnections = 256              // each takes some 20 KiB
	listenInterval = 5 * time.Second  // between two attempts
)

// httpServer serves at the address of --listen. While another program has the port, the
// task retries and the agent's other tasks go on.
func httpServer(address string, handler http.Handler, log *slog.Logger) (task, error) {
	if _, port, err := net.SplitHostPort(address); err != nil || !isPort(port) {
		return nil, fmt.Errorf("--listen is %q: expected host:port", address)
	}
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
	}
	// Probes and Prometheus come at intervals of seconds: a new connection costs them little.
	server.SetKeepAlivesEnabled(false)
	return func(ctx context.Context) error {
		listener := listen(ctx, address, log)
		if listener == nil {
			return nil
		}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(&boundedListener{Listener: listener, max: maxConnections}); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving at %s: %w", address, err)
		}
		return nil
	}, nil
}

func isPort(text string) bool {
	_, err := net.LookupPort("tcp", text)
	return err == nil
}

// listen retries until it listens, as another program can have the port for a while. It
// returns nil if ctx ends first.
func listen(ctx context.Context, address string, log *slog.Logger) net.Listener {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			if attempt > 0 {
				log.Info("probes and metrics are served", "address", address)
			}
			return listener
		}
		if attempt == 0 {
			log.Error("probes and metrics are not served: free the port, or set another one (--listen)", "error", err, "retried_every", listenInterval.String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenInterval):
		}
	}
	return nil
}

// boundedListener closes the oldest connection for one above its limit: a probe, which is
// new and short, is served while others hold all connections that there can be.
type boundedListener struct {
	net.Listener
	max int

	mu   sync.Mutex
	open list.List // of *boundedConn, the oldest first
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	conn := &boundedConn{Conn: accepted, listener: l}
	conn.entry = l.open.PushBack(conn)
	var oldest *boundedConn
	if l.open.Len() > l.max {
		oldest = l.open.Front().Value.(*boundedConn)
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return conn, nil
}

type boundedConn struct {
	net.Conn
	listener *boundedListener
	entry    *list.Element
}

// Close implements net.Conn. It can be called more than once.
func (c *boundedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.open.Remove(c.entry)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
