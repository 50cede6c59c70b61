// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Addresses that pilot-agent and the kubelet expect of Envoy, and pilot-agent's own.
const (
	envoyAdmin  = "127.0.0.1:15000"
	envoyStatus = ":15021"
	agentStatus = "http://127.0.0.1:15020"
)

// stats are those of Envoy's statistics from which pilot-agent derives its readiness.
type stats struct {
	mu       sync.Mutex
	received map[string]bool // types of configuration
}

// envoy stands in for Envoy below pilot-agent: it subscribes to istiod's configuration,
// reports that it is live, and forwards connections without heeding the configuration.
func envoy(ctx context.Context, bootstrap string) error {
	subscriber, err := readBootstrap(bootstrap)
	if err != nil {
		return err
	}
	s := &stats{received: map[string]bool{}}
	agent, err := url.Parse(agentStatus)
	if err != nil {
		return err
	}
	admin := http.NewServeMux()
	admin.Handle("GET /stats", s)
	admin.HandleFunc("POST /drain_listeners", func(http.ResponseWriter, *http.Request) {})
	for address, handler := range map[string]http.Handler{envoyAdmin: admin, envoyStatus: httputil.NewSingleHostReverseProxy(agent)} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		go func() { _ = server.Serve(listener) }() // until the process ends
	}
	go subscriber.run(ctx, s.receive)
	return forward(ctx, false, false)
}

func (s *stats) receive(configurationType string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received[configurationType] = true
}

// ServeHTTP writes statistics in Envoy's text format.
func (s *stats) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, configurationType := range map[string]string{"cluster_manager.cds": clusters, "listener_manager.lds": listeners} {
		success := 0
		if s.received[configurationType] {
			success = 1
		}
		fmt.Fprintf(w, "%s.update_success: %d\n%[1]s.update_rejected: 0\n", name, success)
	}
	fmt.Fprint(w, "server.state: 0\nlistener_manager.workers_started: 1\n")
}
