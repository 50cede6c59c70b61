// SPDX-License-Identifier: Apache-2.0

// Package cri sends the agent's and the guard's requests to the node's container runtime, and reads the
// runtime's own configuration.
package cri

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxMessage limits the bytes of a message, as the kubelet's client does. It is large because a
	// list of sandboxes contains all annotations of all pods.
	maxMessage = 16 << 20

	// statusTimeout limits a request about the runtime or about one sandbox. requestTimeout limits the
	// listing of all sandboxes with their networks.
	statusTimeout  = 2 * time.Second
	requestTimeout = 5 * time.Second
)

// reconnect contains the pauses between attempts to connect, which are those of the kubelet.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// Client sends requests to the node's container runtime, at its CRI socket.
type Client struct {
	sockets []string
	runtime runtimeapi.RuntimeServiceClient
	conn    Connection
}

// Connection is a gRPC connection.
type Connection interface {
	grpc.ClientConnInterface
	io.Closer
}

// New returns a Client. It connects when the first request is sent, because the runtime may start later
// than the agent, and again after it has lost the connection. If there are several sockets, it uses
// the one at which the kubelet's runtime answers.
func New(sockets ...string) (*Client, error) {
	if len(sockets) > 1 {
		return Over(newSearch(sockets), sockets...), nil
	}
	conn, err := dial(sockets[0])
	if err != nil {
		return nil, err
	}
	return Over(conn, sockets...), nil
}

// Over returns a Client that uses a connection to the runtime at one of the sockets.
func Over(conn Connection, sockets ...string) *Client {
	return &Client{sockets, runtimeapi.NewRuntimeServiceClient(conn), conn}
}

func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(reconnect), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("making a client of the CRI socket %s: %w", socket, err)
	}
	return conn, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Socket returns the runtime's socket, or "" while it is unknown which of several sockets is the
// runtime's.
func (c *Client) Socket() string {
	search, ok := c.conn.(*search)
	if !ok {
		return c.sockets[0]
	}
	if conn := search.current(); conn != nil {
		return strings.TrimPrefix(conn.Target(), "unix:")
	}
	return ""
}

// ErrNoSocket means that no CRI socket exists.
var ErrNoSocket = errors.New("no CRI socket")

// failed adds the request's name to a request's error. If none of the sockets exists, it returns
// ErrNoSocket instead.
func (c *Client) failed(request string, err error) error {
	if slices.ContainsFunc(c.sockets, exists) {
		return fmt.Errorf("%s: %w", request, err)
	}
	return fmt.Errorf("%s: %w at %s: is the runtime running, and is this its socket (--cri-socket, paths.criSocket)?",
		request, ErrNoSocket, strings.Join(c.sockets, ", "))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
