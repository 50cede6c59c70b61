// SPDX-License-Identifier: Apache-2.0

// Package pods answers requests of pods at a socket. It watches the pods of its node,
// so that most requests need no request to the API server.
package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/socket"
	"github.com/capture-cni/capture-cni/plugin/record"
)

const (
	checkInterval  = time.Second     // between checks of the socket's path
	relistenPause  = 5 * time.Second // after an attempt to listen failed, or another file took the socket's place
	maxConnections = 256             // at once: more than pods start at once on a node
)

// Settings are those of a Server.
type Settings struct {
	Socket string // in the agent's own file system
	Node   string // whose pods to watch; empty to read each pod when it is asked for
}

// Server answers requests of pods. A nil Server answers none, and knows none.
type Server struct {
	settings Settings
	api      *kube.Client
	answers  *answers
	cache    *podCache
	metrics  *podMetrics
	log      *slog.Logger
	slots    chan struct{} // one for each connection

	mu        sync.Mutex
	listening error // why the socket can't be asked; nil if it can
}

// New returns a Server that registers its metrics with a registry.
func New(settings Settings, api *kube.Client, registry prometheus.Registerer, log *slog.Logger) *Server {
	m := newMetrics(metrics.NewFactory(registry))
	cache := newPodCache(settings.Node != "", m, log)
	return &Server{
		settings: settings, api: api, cache: cache, metrics: m, log: log,
		answers:   &answers{cache: cache, api: api, metrics: m, log: log, node: settings.Node},
		slots:     make(chan struct{}, maxConnections),
		listening: errors.New("the agent does not listen for requests of pods yet"),
	}
}

// Ready returns why pods can't be asked for, nil if they can.
func (s *Server) Ready() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening != nil {
		return s.listening
	}
	return s.cache.unready()
}

// Watches reports whether the watch of the node's pods has a pod with this UID.
func (s *Server) Watches(pod record.PodRef) bool {
	if s == nil {
		return false
	}
	_, found := s.cache.find(pod.String(), pod.UID)
	return found
}

// Serve watches the node's pods and answers requests until ctx ends. It listens again
// whenever the socket was lost. Error: the socket's path is too long.
func (s *Server) Serve(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	if path := s.settings.Socket; len(path) > socket.MaxPath {
		return fmt.Errorf("listening for requests of pods: the path %s has %d bytes: expected at most %d", path, len(path), socket.MaxPath)
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	if s.settings.Node != "" {
		tasks.Go(func() { s.api.WatchNodePods(ctx, s.settings.Node, s.cache) })
	}
	for ctx.Err() == nil {
		err := s.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, socket.ErrRemoved) {
			s.log.Warn("the socket for requests of pods was removed; listening again", "socket", s.settings.Socket)
			continue
		}
		s.setListening(fmt.Errorf("listening for requests of pods at %s: %w", s.settings.Socket, err))
		s.log.Warn("listening for requests of pods failed; retrying", "socket", s.settings.Socket, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(relistenPause):
		}
	}
	return nil
}

func (s *Server) setListening(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = err
}

// listen serves one socket until it is lost, and waits for its connections.
func (s *Server) listen(ctx context.Context) (err error) {
	listener, err := socket.ListenStream(ctx, s.settings.Socket)
	if err != nil {
		return err
	}
	var connections sync.WaitGroup
	defer connections.Wait()
	defer func() { err = errors.Join(err, listener.Close()) }()
	defer context.AfterFunc(ctx, func() { _ = listener.SetDeadline(time.Unix(1, 0)) })()
	made, err := os.Lstat(s.settings.Socket)
	if err != nil {
		return err
	}
	s.setListening(nil)
	for ctx.Err() == nil {
		if err := socket.CheckPath(s.settings.Socket, made); err != nil {
			return err
		}
		if err := s.accept(ctx, listener, &connections, time.Now().Add(checkInterval)); err != nil {
			return err
		}
	}
	return nil
}

// accept serves connections until a time.
func (s *Server) accept(ctx context.Context, listener *net.UnixListener, connections *sync.WaitGroup, until time.Time) error {
	if err := listener.SetDeadline(until); err != nil {
		return err
	}
	for ctx.Err() == nil {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case s.slots <- struct{}{}:
			connections.Go(func() {
				defer func() { <-s.slots }()
				s.serve(ctx, conn)
			})
		default:
			s.metrics.refused.WithLabelValues(reasonFull).Inc()
			_ = conn.Close() // without a byte: the other end does not wait for it
		}
	}
	return nil
}
