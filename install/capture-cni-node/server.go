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

// Limits of the HTTP servers. They are necessary because every process in the node's network can
// connect, and every pod if --listen is an address of the node.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second // to read a request, or to write the answer
	maxHeader      = 8 << 10          // bytes
	maxConnections = 256              // each uses about 20 KiB
	listenInterval = 5 * time.Second  // between two attempts
)

// listenAddress parses the address of --listen, in which the last colon separates the port. The host
// can also be an IPv6 address without brackets, which is the form in which the kubelet passes a node's
// address.
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

// httpServer returns a task that serves at the address of --listen. While another program uses the
// port, the task retries, and the program's other tasks continue.
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
	// Probes and Prometheus send requests at intervals of seconds, so a new connection for each costs
	// little.
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

// listen listens at an address. After an error, for example while another program uses the port, it
// retries until ctx ends, and then returns nil.
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

// bounded limits the number of open connections. Beyond the limit, it closes the oldest one, so that a
// probe, which is new and short, is served even if other clients hold as many connections as they can.
type bounded struct {
	max  int
	mu   sync.Mutex
	open []net.Conn // the oldest first
}

// observe implements http.Server.ConnState. The server calls it for a new connection before it serves
// the connection, and when a connection ends.
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
