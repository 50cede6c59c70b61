// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
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

// listenAddress reads the address of --listen. Its last colon separates the port, so that
// the host can be an IPv6 address without brackets, as the kubelet writes a node's own.
func listenAddress(text string) (string, error) {
	address, colon := text, strings.LastIndex(text, ":")
	if host := text[:max(colon, 0)]; net.ParseIP(host) != nil {
		address = net.JoinHostPort(host, text[colon+1:])
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return "", fmt.Errorf("--listen is %q: expected host:port", text)
	}
	return address, nil
}

// httpServer serves at the address of --listen. While another program has the port, the
// task retries and the agent's other tasks go on.
func httpServer(address string, handler http.Handler, log *slog.Logger) (task, error) {
	address, err := listenAddress(address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		ConnState: (&bounded{max: maxConnections}).observe,
	}
	// Probes and Prometheus come at intervals of seconds: a new connection costs them little.
	server.SetKeepAlivesEnabled(false)
	return func(ctx context.Context) error {
		listener := listen(ctx, address, log)
		if listener == nil {
			return nil
		}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving at %s: %w", address, err)
		}
		return nil
	}, nil
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
			log.Error("probes and metrics are not served: free the port, or set another one (--listen)",
				"error", err, "retried_every", listenInterval.String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenInterval):
		}
	}
	return nil
}

// bounded closes the oldest connection for one above the limit: a probe, which is new and
// short, is served while others hold all connections that there can be.
type bounded struct {
	max  int
	mu   sync.Mutex
	open []net.Conn // the oldest first
}

// observe is a http.Server's ConnState, which is called for a new connection before it is
// served.
func (b *bounded) observe(conn net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state {
	case http.StateNew:
		b.open = append(b.open, conn)
		if len(b.open) > b.max {
			_ = b.open[0].Close()
			b.open = b.open[1:]
		}
	case http.StateClosed:
		b.open = slices.DeleteFunc(b.open, func(c net.Conn) bool { return c == conn })
	}
}
