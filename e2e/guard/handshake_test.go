// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
)

// TestHalfOpenConnections repairs a pod between a SYN and its answer, and between that
// and its acknowledgement. What the application began is refused once it repeats the
// SYN; what it answered lives on.
func TestHalfOpenConnections(t *testing.T) {
	forEachMode(t, func(t *testing.T, p *pod) func(*testing.T) {
		// The peer keeps the answer to a SYN from going out, and from coming in.
		p.peer.Load(t, `table inet silent {
			chain output { type filter hook output priority 0; tcp sport 9000 tcp flags syn,ack / syn,ack drop; }
			chain input { type filter hook input priority 0; tcp sport 9000 tcp flags syn,ack / syn,ack drop; }
		}`)
		type dialed struct {
			name string
			conn net.Conn
			err  error
		}
		done := map[*lab.Host]chan dialed{p.host: make(chan dialed), p.peer: make(chan dialed)}
		addresses := []struct {
			name string
			from *lab.Host
			to   string
		}{
			{"outbound", p.host, peerAddress},
			{"outbound, IPv6", p.host, peerAddress6},
			{"inbound", p.peer, podAddress},
			{"inbound, IPv6", p.peer, podAddress6},
		}
		for _, a := range addresses {
			go func() {
				d := dialed{name: a.name}
				d.conn, d.err = connect(a.from, net.JoinHostPort(a.to, fmt.Sprint(echoPort)))
				done[a.from] <- d
			}()
		}
		lab.Eventually(t, func() error {
			got := map[kernel.SocketState]int{}
			for _, s := range p.sockets(t) {
				got[s.State]++
			}
			if got[kernel.SynSent] != 2 || got[kernel.SynReceived] != 2 {
				return fmt.Errorf("sockets by state: %v", got)
			}
			return nil
		})
		return func(t *testing.T) {
			for range 2 {
				if d := <-done[p.host]; !errors.Is(d.err, unix.ECONNREFUSED) {
					t.Errorf("%s: %v", d.name, d.err)
				}
			}
			p.peer.Load(t, "delete table inet silent")
			for range 2 {
				d := <-done[p.peer]
				if d.err != nil {
					t.Errorf("%s: %v", d.name, d.err)
					continue
				}
				if err := errors.Join(works(d.conn), works(d.conn), d.conn.Close()); err != nil {
					t.Errorf("%s: it ended: %v", d.name, err)
				}
			}
		}
	})
}

func (p *pod) sockets(t *testing.T) (sockets []kernel.Socket) {
	t.Helper()
	p.host.Within(t, func() (err error) {
		sockets, _, err = kernel.Sockets(t.Context(), 1000)
		return err
	})
	return sockets
}

// TestHalfClosedConnectionsLiveOn: the end that has not closed goes on to send.
func TestHalfClosedConnectionsLiveOn(t *testing.T) {
	forEachMode(t, func(t *testing.T, p *pod) func(*testing.T) {
		p.hurry(t)
		const port = 9001
		listener := listen(t, p.host, port, nil)
		pairs := map[string][2]net.Conn{} // who has closed, and who sends
		for _, closer := range []string{"client", "server"} {
			for _, address := range []string{podAddress, podAddress6} {
				client := dial(t, p.peer, net.JoinHostPort(address, fmt.Sprint(port)))
				server, err := listener.Accept()
				lab.Check(t, err)
				t.Cleanup(func() { _ = server.Close() })
				ends := [2]net.Conn{client, server}
				if closer == "server" {
					ends = [2]net.Conn{server, client}
				}
				lab.Check(t, ends[0].(*net.TCPConn).CloseWrite())
				pairs[closer+", "+address] = ends
			}
		}
		return func(t *testing.T) {
			p.outlive(t)
			for name, ends := range pairs {
				_, err := ends[1].Write([]byte("the rest"))
				err = errors.Join(err, ends[1].Close(), ends[0].SetReadDeadline(time.Now().Add(10*time.Second)))
				rest, readErr := io.ReadAll(ends[0])
				if err := errors.Join(err, readErr); err != nil || string(rest) != "the rest" {
					t.Errorf("%s has closed its half, and gets %q, %v", name, rest, err)
				}
			}
		}
	})
}
