// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// greeting is the first line of an echo server; proxies send theirs before it.
const greeting = "echo\n"

// echo sends back what it receives.
func echo(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := io.WriteString(conn, greeting); err == nil {
					_, _ = io.Copy(conn, conn) // until either side closes
				}
			}()
		}
	}()
	err = pause(ctx)
	_ = listener.Close()
	return err
}

// hold keeps one connection to an echo server open. It prints the answers of all
// hops, and then a line for each ten bytes that came back.
func hold(ctx context.Context, address string) error {
	conn, err := dial(net.Dialer{Timeout: timeout}, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	back := bufio.NewReader(conn)
	for line := ""; line != greeting; {
		if line, err = back.ReadString('\n'); err != nil {
			return err
		}
		fmt.Print(line)
	}
	for n := 1; ctx.Err() == nil; n++ {
		if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte{'.'}); err != nil {
			return err
		}
		if _, err := back.ReadByte(); err != nil {
			return err
		}
		if n%10 == 0 {
			fmt.Println("alive", n)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}
