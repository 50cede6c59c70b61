// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

const patience = 3 * time.Second

// here is the pod's own network.
var here = &lab.Host{}

func serve(ctx context.Context, network string, addresses []string) error {
	for _, address := range addresses {
		server, err := here.Serve(network, address, name("app"))
		if err != nil {
			return err
		}
		defer server.Close()
	}
	return pause(ctx)
}

// ask prints what everybody on the way says, one JSON object a line.
func ask(network, to string, from []string) error {
	dialer := net.Dialer{Timeout: patience}
	if len(from) > 0 {
		address, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(from[0], "0"))
		if err != nil {
			return err
		}
		dialer.LocalAddr = address
	}
	conn, err := dialer.Dial(network, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
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
