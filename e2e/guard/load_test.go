// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/terms"
)

// TestRepairUnderLoad repairs pods while connections speak, and others begin,
// all the time: none ends, and none fails to begin.
func TestRepairUnderLoad(t *testing.T) {
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		for i := range 5 {
			t.Run(fmt.Sprintf("%s %d", mode, i), func(t *testing.T) { repairUnderLoad(t, mode) })
		}
	}
}

func repairUnderLoad(t *testing.T, mode string) {
	n := newNode()
	p := n.run(t, "web")
	n.dualStack(t, p, mode)
	p.echo(t, inboundPort)
	p.echo(t, 15001)
	listenEcho(t, p.host, echoPort)
	listenEcho(t, p.peer, echoPort)
	targets := map[string]*lab.Host{podAddress: p.peer, podAddress6: p.peer, peerAddress: p.host, peerAddress6: p.host}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var speaking sync.WaitGroup
	failed := make(chan error, 1000)
	loop := func(what string, f func() error) {
		speaking.Go(func() {
			for ctx.Err() == nil {
				if err := f(); err != nil {
					failed <- fmt.Errorf("%s: %w", what, err)
					return
				}
			}
		})
	}
	for address, from := range targets {
		to := net.JoinHostPort(address, fmt.Sprint(echoPort))
		for range 10 {
			conn := dialFrom(t, from, to)
			loop("a connection to "+to, func() error { return works(conn) })
		}
		loop("new connections to "+to, func() error {
			var conn net.Conn
			err := from.Do(func() (err error) {
				conn, err = net.DialTimeout("tcp", to, 10*time.Second)
				return err
			})
			if err != nil {
				return err
			}
			return errors.Join(works(conn), works(conn), conn.Close())
		})
	}
	time.Sleep(50 * time.Millisecond)
	keeper, registry := n.keeper(t, guard.InPlace)
	keeper.Round(t.Context())
	expect(t, registry, map[terms.State]float64{terms.Captured: 1})
	time.Sleep(50 * time.Millisecond)
	end()
	speaking.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
}
