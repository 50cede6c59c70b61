// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Agent is the socket at which the node agent answers requests for pods.
type Agent struct {
	Socket        string
	AcceptTimeout time.Duration // 0 means acceptTimeout; tests, which also play the agent, set a longer timeout
}

// acceptTimeout limits the wait for the byte with which the agent begins to serve a connection. While
// the agent's process is stopped, the kernel accepts the connection, but this byte does not arrive.
const acceptTimeout = 100 * time.Millisecond

// notServing is the error if no agent began to serve the request, for example because the agent does
// not run, its process is stopped, or it already serves its maximum of connections.
type notServing struct{ error }

func (n notServing) Unwrap() error { return n.error }

// Ask sends a request, and waits for the answer until ctx ends. If the agent answers with a fault, the
// error wraps a *Fault. Any other error means that no usable answer arrived.
func (a Agent) Ask(ctx context.Context, request Request) (Answer, error) {
	answer, err := inTheirVersion(request, func(request Request) (Answer, error) { return a.ask(ctx, request) })
	if err != nil {
		return Answer{}, fmt.Errorf("asking the node agent at %s: %w", a.Socket, err)
	}
	return answer, nil
}

// Ping returns nil if the agent can answer requests, and otherwise an error with the reason.
func (a Agent) Ping(ctx context.Context) error {
	_, err := a.Ask(ctx, Request{})
	return err
}

func (a Agent) ask(ctx context.Context, request Request) (Answer, error) {
	document, err := json.Marshal(request)
	if err != nil {
		return Answer{}, fmt.Errorf("encoding the request: %w", err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", a.Socket) // the kernel accepts or refuses at once
	if err != nil {
		return Answer{}, notServing{err}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := waitForService(conn.(*net.UnixConn), cmp.Or(a.AcceptTimeout, acceptTimeout)); err != nil {
		return Answer{}, notServing{err}
	}
	if err := ctx.Err(); err != nil { // waitForService may have replaced the deadline that the end of ctx set
		return Answer{}, err
	}
	if err := WriteMessage(conn, document); err != nil {
		return Answer{}, err
	}
	received, err := ReadMessage(conn, MaxAnswer)
	if err != nil {
		return Answer{}, errors.Join(ctx.Err(), err)
	}
	return ParseAnswer(received, request)
}

// waitForService returns an error unless the process at the other end runs as this process's user,
// which is root, and begins to serve the connection within the timeout.
func waitForService(conn *net.UnixConn, timeout time.Duration) error {
	uid, err := PeerUID(conn)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() {
		return fmt.Errorf("uid %d listens there: expected uid %d", uid, os.Geteuid())
	}
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	var first [1]byte
	if _, err := conn.Read(first[:]); err != nil {
		return fmt.Errorf("the agent did not accept the connection within %s: %w", timeout, err)
	}
	if first[0] != Accepted {
		return fmt.Errorf("the first byte is %#x: expected %#x", first[0], Accepted)
	}
	return conn.SetReadDeadline(time.Time{})
}

// PeerUID returns the user of the process at the other end of a connection. Root of another user
// namespace has another uid than 0 here.
func PeerUID(conn *net.UnixConn) (uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(controlErr, err); err != nil {
		return 0, fmt.Errorf("reading the user of the other end: %w", err)
	}
	return int(peer.Uid), nil
}
