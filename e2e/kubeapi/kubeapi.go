// SPDX-License-Identifier: Apache-2.0

// Package kubeapi is a small API server for the demo, the tests and the
// benchmarks. It serves pods, tokens, nodes, events and Leases over TLS, requires a
// bearer token, and answers with faults where a test wants them.
package kubeapi

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

// Server serves pods on a loopback port of its own.
type Server struct {
	URL  string
	Cert Certificate

	http     *http.Server
	requests atomic.Int64

	mu    sync.Mutex
	token string
	pods  map[string]*corev1.Pod
	nodes map[string]*corev1.Node
	fault Fault

	deletedNodes map[string]bool

	events []corev1.Event

	leases       map[string]*coordination.Lease // by namespace/name
	leaseVersion int

	issuer  issuer
	changes changes
}

// Fault is called before each request. It answers the request and returns true,
// or returns false, and the Server answers.
type Fault func(w http.ResponseWriter, r *http.Request) bool

// Option changes how a Server starts.
type Option func(*options)

type options struct {
	listener net.Listener
	notAfter time.Time
	start    time.Time
}

// WithListener serves on l instead of a free loopback port.
func WithListener(l net.Listener) Option { return func(o *options) { o.listener = l } }

// WithValidity sets the serving certificate's validity.
func WithValidity(from, until time.Time) Option {
	return func(o *options) { o.start, o.notAfter = from, until }
}

// New returns a Server that answers only calls of ServeHTTP.
func New() *Server {
	return &Server{
		token: "token-of-the-demo",
		pods:  map[string]*corev1.Pod{},
		nodes: map[string]*corev1.Node{},

		deletedNodes: map[string]bool{},

		leases: map[string]*coordination.Lease{},

		changes: newChanges(),
	}
}

// Start serves until Close.
func Start(opts ...Option) (*Server, error) {
	o := options{start: time.Now().Add(-time.Hour), notAfter: time.Now().Add(24 * time.Hour)}
	for _, opt := range opts {
		opt(&o)
	}
	if o.listener == nil {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
		o.listener = listener
	}
	cert, err := newCertificate(o.start, o.notAfter)
	if err != nil {
		return nil, err
	}
	s := New()
	s.URL, s.Cert = "https://"+o.listener.Addr().String(), cert
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert.pair}, MinVersion: tls.VersionTLS12},
		ErrorLog:          discardLog(),
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) },
	}
	go func() { _ = s.http.ServeTLS(o.listener, "", "") }() // until Close, which is its error
	return s, nil
}

// Close stops the Server without waiting for requests.
func (s *Server) Close() error { return s.http.Close() }

// Requests returns how many requests came in.
func (s *Server) Requests() int { return int(s.requests.Load()) }

// Misbehave sets the fault that is called before each request; nil for none.
func (s *Server) Misbehave(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Token returns the token that the Server accepts.
func (s *Server) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// SetToken makes the Server accept another token.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// ServeHTTP answers GET of pods, lists and watches of all pods, requests for tokens,
// nodes, events and Leases, and GET /api, which clients use to check a token.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	s.mu.Lock()
	s.changes.counts[kindOf(r)]++
	fault := s.fault
	s.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	if !s.accepts(r) {
		WriteStatus(w, r, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
		return
	}
	part := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/api":
		_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
		return
	case r.Method == http.MethodPost && len(part) == 7 && part[4] == "serviceaccounts" && part[6] == "token":
		s.serveToken(w, r)
		return
	case len(part) == 4 && part[2] == "nodes" && (r.Method == http.MethodGet || r.Method == http.MethodPatch):
		s.serveNode(w, r, part[3])
		return
	case r.Method == http.MethodPost && len(part) == 5 && part[4] == "events":
		s.serveEvent(w, r)
		return
	case strings.HasPrefix(r.URL.Path, leasesPath):
		s.serveLease(w, r)
		return
	case r.Method == http.MethodGet && r.URL.Path == podsPath:
		s.servePods(w, r)
		return
	}
	if r.Method != http.MethodGet || len(part) != 6 || part[0] != "api" || part[4] != "pods" {
		WriteStatus(w, r, http.StatusForbidden, metav1.StatusReasonForbidden, "only pods can be read")
		return
	}
	s.servePod(w, r, part[3], part[5])
}

// WriteStatus answers with an error in the API server's form.
func WriteStatus(w http.ResponseWriter, r *http.Request, code int, reason metav1.StatusReason, message string) {
	write(w, r, code, &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}

// write encodes the object as protobuf where the client prefers it, else as JSON.
func write(w http.ResponseWriter, r *http.Request, code int, object runtime.Object) {
	codecs, mediaType := newCodecs(), mediaTypeFor(r)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(code)
	_ = codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(object, w)
}

var newCodecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.Event{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return serializer.NewCodecFactory(scheme)
})

func mediaTypeFor(r *http.Request) string {
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// LoadDirectory adds every pod manifest (*.yaml, *.yml, *.json) in a directory.
func (s *Server) LoadDirectory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading manifests: %w", err)
	}
	for _, entry := range entries {
		switch filepath.Ext(entry.Name()) {
		case ".yaml", ".yml", ".json":
		default:
			continue
		}
		pod, err := LoadPod(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		s.Put(pod)
	}
	return nil
}

// LoadPod reads a pod manifest; its namespace defaults to "default".
func LoadPod(path string) (*corev1.Pod, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if pod.Kind != "Pod" || pod.Name == "" {
		return nil, fmt.Errorf("reading %s: expected a Pod with a name, got kind %q", path, pod.Kind)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	return pod, nil
}
