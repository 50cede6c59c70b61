// SPDX-License-Identifier: Apache-2.0

// Package cri makes every request of the agent and of the guard to the node's
// container runtime.
package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxMessage is that of the kubelet's client: a listing of sandboxes has all
	// annotations of all pods.
	maxMessage = 16 << 20

	// statusTimeout bounds a request about the runtime or one sandbox, requestTimeout
	// a listing of all sandboxes.
	statusTimeout  = 2 * time.Second
	requestTimeout = 5 * time.Second
)

// reconnect paces the attempts to connect, as the kubelet does.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// Client is the node's container runtime, behind its CRI socket.
type Client struct {
	socket  string
	runtime runtimeapi.RuntimeServiceClient
	conn    *grpc.ClientConn
}

// New returns a client. It connects with the first request, and again after the
// connection was lost: the runtime may start later than the agent.
func New(socket string) (*Client, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithConnectParams(reconnect), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("making a client of the CRI socket %s: %w", socket, err)
	}
	return &Client{socket, runtimeapi.NewRuntimeServiceClient(conn), conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// ErrNoSocket means that the CRI socket does not exist.
var ErrNoSocket = errors.New("no CRI socket")

// failed returns the error of a request that failed. Errors: ErrNoSocket.
func (c *Client) failed(request string, err error) error {
	if _, statErr := os.Stat(c.socket); errors.Is(statErr, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w at %s: is the runtime running, and is this its socket (--cri-socket, paths.criSocket)?", request, ErrNoSocket, c.socket)
	}
	return fmt.Errorf("%s: %w", request, err)
}

// Version is what the runtime says of itself.
type Version struct{ Name, Version string }

// Version returns the name and the version of the runtime.
func (c *Client) Version(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return Version{}, c.failed("asking the runtime for its version", err)
	}
	return Version{answer.RuntimeName, answer.RuntimeVersion}, nil
}
