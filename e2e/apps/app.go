// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// timeout is for a server on another node of a busy machine.
const timeout = 10 * time.Second

// podNetwork is the pod's network namespace, which the process is in.
var podNetwork = &lab.Host{}

func serve(ctx context.Context, network string, addresses []string) error {
	for _, address := range addresses {
		server, err := podNetwork.Serve(network, address, name("app"))
		if err != nil {
			return err
		}
		defer server.Close()
	}
	return pause(ctx)
}

// dial retries a refused connection: a container runs before its program listens.
func dial(dialer net.Dialer, network, to string) (net.Conn, error) {
	for deadline := time.Now().Add(dialer.Timeout); ; time.Sleep(50 * time.Millisecond) {
		conn, err := dialer.Dial(network, to)
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(deadline) {
			return conn, err
		}
	}
}

// ask connects and prints the answers of all hops, one JSON object a line.
func ask(network, to string, from []string) error {
	dialer := net.Dialer{Timeout: timeout}
	if len(from) > 0 {
		address, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(from[0], "0"))
		if err != nil {
			return err
		}
		dialer.LocalAddr = address
	}
	conn, err := dial(dialer, network, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if network != "udp" {
		_, err = io.Copy(os.Stdout, conn)
		return err
	}
	if _, err := conn.Write([]byte{0}); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadBytes('\n')
	if len(answer) > 0 {
		_, err = os.Stdout.Write(answer)
	}
	return err
}
