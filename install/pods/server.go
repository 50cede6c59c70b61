// SPDX-License-Identifier: Apache-2.0

// Package pods answers requests for pods at a socket. It watches the pods of its node, so most answers
// need no request to the API server.
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

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// maxConnections limits the number of simultaneous connections. It exceeds the number of pods that
// start on a node at the same time.
const maxConnections = 256

// Settings contains the settings of a Server.
type Settings struct {
	Socket string            // path in the agent's file system
	Node   string            // the node whose pods to watch; if empty, the Server reads each pod on request
	Meshes []config.MeshName // the meshes whose pods are captured
}

// Server answers requests for pods. A nil Server answers no request and watches no pod.
type Server struct {
	settings Settings
	api      *kube.Client
	answers  *answers
	cache    *podCache
	metrics  *podMetrics
	log      *slog.Logger
	slots    chan struct{} // one for each connection

	mu        sync.Mutex
	listening error // why the Server does not listen, or nil if it does
}

// New returns a Server that registers its metrics with a registry.
func New(settings Settings, api *kube.Client, registry prometheus.Registerer, log *slog.Logger) *Server {
	m := newMetrics(metrics.NewFactory(registry))
	cache := newPodCache(settings.Node != "", settings.Meshes, m, log)
	return &Server{
		settings: settings, api: api, cache: cache, metrics: m, log: log,
		answers:   &answers{cache: cache, api: api, metrics: m, log: log, node: settings.Node},
		slots:     make(chan struct{}, maxConnections),
		listening: errors.New("the agent does not listen for requests for pods yet"),
	}
}

// Ready returns nil if the Server is nil or can answer requests, and otherwise the reason.
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

// Store returns the store of the node's pods, which Serve keeps up to date.
func (s *Server) Store() kube.PodStore { return s.cache }

// Answer answers one request.
func (s *Server) Answer(ctx context.Context, request lookup.Request) []byte {
	return s.answers.answer(ctx, request)
}

// Watches reports whether the watch has found a pod with this UID on the node.
func (s *Server) Watches(pod capture.PodRef) bool {
	if s == nil {
		return false
	}
	_, found := s.cache.find(pod.String(), pod.UID)
	return found
}

// Serve watches the node's pods and answers requests until ctx ends. It listens again after each loss
// of the socket. It returns an error if the socket's path is too long.
func (s *Server) Serve(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	if path := s.settings.Socket; len(path) > host.MaxPath {
		return fmt.Errorf("listening for lookups of pods: the path %s has %d bytes: expected at most %d", path, len(path), host.MaxPath)
	}
	var tasks sync.WaitGroup
	defer tasks.Wait()
	if s.settings.Node != "" {
		tasks.Go(func() { s.api.WatchNodePods(ctx, s.settings.Node, s.Store()) })
	}
	accept := func(l *net.UnixListener) error { return s.accept(ctx, l, &tasks) }
	host.Serve(ctx, []string{s.settings.Socket}, s.listen, accept, s.lost, s.log)
	return nil
}

// listen creates the socket, and records that the Server listens.
func (s *Server) listen(ctx context.Context) (*net.UnixListener, error) {
	listener, err := host.ListenStream(ctx, s.settings.Socket)
	if err == nil {
		s.setListening(nil)
	}
	return listener, err
}

// lost records that the socket was lost, or could not be created.
func (s *Server) lost(err error) {
	s.setListening(fmt.Errorf("listening for lookups of pods at %s: %w", s.settings.Socket, err))
	s.log.Warn("listening for lookups of pods failed; retrying", "socket", s.settings.Socket, "error", err)
}

func (s *Server) setListening(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = err
}

// accept accepts a connection, and serves it in a goroutine that connections counts. While
// maxConnections are open, it closes the new connection instead.
func (s *Server) accept(ctx context.Context, listener *net.UnixListener, connections *sync.WaitGroup) error {
	conn, err := listener.AcceptUnix()
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
		_ = conn.Close() // without lookup.Accepted, so that the other end does not wait
	}
	return nil
}

// Time limits of a connection. A read from the API server can take 10 seconds.
const (
	connectionTimeout = 12 * time.Second
	requestTimeout    = time.Second
	endTimeout        = time.Second // after the end of ctx
)

func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }() // a failed close loses nothing
	ctx, cancel := context.WithTimeout(ctx, connectionTimeout)
	defer cancel()
	if uid, err := lookup.PeerUID(conn); err != nil || uid != os.Geteuid() {
		s.metrics.refused.WithLabelValues(reasonPeer).Inc()
		s.log.Debug("refusing a connection that is not known to be of the agent's own user", "uid", uid, "error", err)
		return
	}
	if err := s.answer(ctx, conn); err != nil {
		s.metrics.requests.WithLabelValues(sourceFault).Inc()
		s.log.Debug("answering a request for a pod failed", "error", err)
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
	return lookup.WriteMessage(conn, s.Answer(ctx, request))
}

// Values of the label source, which says where an answer comes from.
const (
	sourceWatch     = "watch"
	sourceRead      = "read"
	sourceUnchanged = "unchanged"
	sourceFault     = "fault"
)

// Values of the label reason, which says why a connection was refused.
const (
	reasonFull = "full"
	reasonPeer = "peer"
)

type podMetrics struct {
	requests        *prometheus.CounterVec
	watched, synced prometheus.Gauge
	refused         *prometheus.CounterVec
}

// Metrics describes the Server's metrics.
func Metrics() []metrics.Metric { return metrics.Document(newMetrics) }

func newMetrics(f *metrics.Factory) *podMetrics {
	return &podMetrics{
		requests: f.Counters("pod_requests_total",
			"requests for pods, by the answer's `source` (watch; read: API server; unchanged; fault)",
			"source", sourceWatch, sourceRead, sourceUnchanged, sourceFault),
		watched: f.Gauge("pods_watched", "pods of this node that the agent knows"),
		synced:  f.Gauge("pods_synced", "1 once the agent has read its node's pods"),
		refused: f.Counters("pods_connections_refused_total",
			"refused requests for pods, by `reason` (full: too many; peer: another user)",
			"reason", reasonFull, reasonPeer),
	}
}
