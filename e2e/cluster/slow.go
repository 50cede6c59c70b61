// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// slowTable sends the node's own connections to the service of the API server to a
// proxy on the node. Its chain comes before those of kube-proxy.
const slowTable = `table ip slow-api {
  chain output {
    type nat hook output priority -110
    ip daddr ` + firstService + ` tcp dport 443 redirect to :%d
  }
}
`

// SlowAPI delays what the API server sends to the agent and to capture-cni-lookup, on
// connections that begin from now on. The kubelet does not use the service.
func (n *Node) SlowAPI(ctx context.Context, delay time.Duration) (restore func() error, err error) {
	host, err := n.Host()
	if err != nil {
		return nil, err
	}
	var listener net.Listener
	if err := host.Do(func() (err error) {
		listener, err = net.Listen("tcp4", ":0")
		return err
	}); err != nil {
		return nil, errors.Join(err, host.NetNS.Close())
	}
	proxying, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go proxySlowly(proxying, host, client, delay)
		}
	}()
	restore = func() error {
		err := n.nft(context.WithoutCancel(ctx), "delete table ip slow-api")
		stop()
		return errors.Join(err, listener.Close(), host.NetNS.Close())
	}
	if err := n.nft(ctx, fmt.Sprintf(slowTable, listener.Addr().(*net.TCPAddr).Port)); err != nil {
		return nil, errors.Join(err, restore())
	}
	return restore, nil
}

func (n *Node) nft(ctx context.Context, script string) error {
	command := n.Command(ctx, "nft", "--file", "-")
	command.Stdin = strings.NewReader(script)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("running nft on %s: %w: %s", n.Name, err, out)
	}
	return nil
}

// proxySlowly serves one connection until either end closes it, or ctx ends.
func proxySlowly(ctx context.Context, host *lab.Host, client net.Conn, delay time.Duration) {
	defer client.Close()
	var server net.Conn
	if err := host.Do(func() (err error) {
		server, err = (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(controlIPv4, "6443"))
		return err
	}); err != nil {
		return // the client sees its connection end
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	copyLate(client, server, delay)
}

// copyLate forwards each piece a delay after it arrived.
func copyLate(to io.Writer, from io.Reader, delay time.Duration) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 1<<12)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 32<<10)
			size, err := from.Read(data)
			if err != nil {
				return
			}
			pieces <- piece{data[:size], time.Now().Add(delay)}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	for range pieces { // the reader ends with its connection
	}
}
