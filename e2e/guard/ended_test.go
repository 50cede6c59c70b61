// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestEndedConnectionsExemptNone: a connection of before the repair ends, by
// either side, in order or by a reset. The next one with its addresses and
// ports is captured.
func TestEndedConnectionsExemptNone(t *testing.T) {
	forEachMode(t, func(t *testing.T, p *pod) func(*testing.T) {
		const port = 9001
		type connection struct {
			direction
			name           string
			client, server *net.TCPConn
		}
		var connections []connection
		for _, d := range directions {
			listener := listen(t, d.to(p), port, nil)
			for _, name := range []string{"closed by the server", "reset by the server", "reset by the client"} {
				for _, ipv6 := range []bool{false, true} {
					_, to := d.tuple(ipv6, 0)
					client := dial(t, d.from(p), net.JoinHostPort(to.Addr().String(), fmt.Sprint(port)))
					server, err := listener.Accept()
					lab.Check(t, err)
					connections = append(connections, connection{d, name, client, server.(*net.TCPConn)})
				}
			}
		}
		return func(t *testing.T) {
			for _, c := range connections {
				first, second := c.server, c.client
				if c.name == "reset by the client" {
					first, second = second, first
				}
				if c.name != "closed by the server" {
					lab.Check(t, first.SetLinger(0))
				}
				lab.Check(t, first.Close())
				_, _ = io.Copy(io.Discard, second) // until its end, or the reset
				lab.Check(t, errors.Join(second.Close()))
				from, to := c.client.LocalAddr().String(), c.client.RemoteAddr().String()
				answer, err := c.from(p).Ask(lab.Owner{UID: 1000, GID: 1000}, "tcp", from, to)
				if err != nil || answer.Server != c.want {
					t.Errorf("%s, %s: the next one from %s to %s reaches %q, want %q (%v)", c.direction.name, c.name, from, to, answer.Server, c.want, err)
				}
			}
		}
	})
}
