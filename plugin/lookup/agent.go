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

// Agent is the node agent's socket for requests of pods.
type Agent struct {
	Socket        string
	AcceptTimeout time.Duration // acceptTimeout if 0; tests are the agent, too, and set a longer one
}

// acceptTimeout is for the byte with which the agent begins to serve a connection. An
// agent that is stopped accepts none, though the kernel does.
const acceptTimeout = 100 * time.Millisecond

// notServing is the error of an agent that began to serve no request: it does not
// run, is stopped, or serves as many connections as it may.
type notServing struct{ error }

func (n notServing) Unwrap() error { return n.error }

// Ask sends one request. It waits for the answer until ctx ends. Errors: *Fault; any
// other means that the agent did not answer.
func (a Agent) Ask(ctx context.Context, request Request) (Answer, error) {
	answer, err := inTheirVersion(request, func(request Request) (Answer, error) { return a.ask(ctx, request) })
	if err != nil {
		return Answer{}, fmt.Errorf("asking the node agent at %s: %w", a.Socket, err)
	}
	return answer, nil
}

// Ping returns why the agent can't answer requests, nil if it can.
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
	if err := ctx.Err(); err != nil { // its deadline may have been replaced
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

// waitForService checks that the agent belongs to this process's user, as root's
// plugin and agent do, and that it serves the connection.
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

// PeerUID returns the user of the process at the other end of a connection. Root of
// another user namespace has another uid here.
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
