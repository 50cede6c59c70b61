// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
)

// echoAt has a host send back what connections to a port send, and returns how many it accepted.
func echoAt(t *testing.T, host *lab.Host, port int) (accepted *atomic.Int64) {
	t.Helper()
	accepted = new(atomic.Int64)
	var listener net.Listener
	host.Within(t, func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go func() {
				defer conn.Close()
				_, _ = io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}) // without a pipe of its own
			}()
		}
	}()
	return accepted
}

// echoes reports why a connection does not send back what it is sent.
func echoes(conn net.Conn, text string) error {
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != text {
		return fmt.Errorf("%q comes back of %q: %w", back, text, errors.Join(err))
	}
	return nil
}

// ways are an outbound and an inbound connection to an echo at the port 9080, by family.
func (w world) ways(t *testing.T) (connections map[string]*net.TCPConn) {
	t.Helper()
	connections = map[string]*net.TCPConn{}
	for _, f := range bothFamilies {
		for name, way := range map[string]struct {
			from *lab.Host
			to   string
		}{"outbound": {w.pod, external[f]}, "inbound": {w.peer, podIP[f]}} {
			conn, err := way.from.Dial(app, "", net.JoinHostPort(way.to, "9080"))
			lab.Check(t, err)
			lab.Check(t, echoes(conn, "hello"))
			t.Cleanup(func() { _ = conn.Close() })
			connections[name+", "+f.String()] = conn
		}
	}
	return connections
}

func (w world) echo(t *testing.T) (inPod, inPeer *atomic.Int64) {
	t.Helper()
	return echoAt(t, w.pod, 9080), echoAt(t, w.peer, 9080)
}

// TestOracleEnvoyRestart has Envoy restart hot, and replace its listeners: connections that are
// open go on while the older listeners drain, and new ones reach the newer ones. At no moment
// does one go past Envoy.
func TestOracleEnvoyRestart(t *testing.T) {
	t.Parallel()
	forEachEnvoy(t, func(t *testing.T, w world, envoy *lab.Envoy, mode string) {
		w.echo(t)
		older := w.ways(t)
		envoy.Configure("second")
		accepts(t, envoy, 2, 2, func() error { w.ways(t); return nil })
		envoy.Restart()
		for name, conn := range older {
			if err := echoes(conn, "during the drain"); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: %v", name, err) // Envoy may have closed it
			}
		}
		accepts(t, envoy, 2, 2, func() error { w.ways(t); return nil })
		envoy.WaitForParent()
		accepts(t, envoy, 2, 2, func() error { w.ways(t); return nil })
	})
}

// TestOracleEnvoyStopped has Envoy stop, as a process does that gets no time: connections wait
// for it, those beyond its full backlog by sending their SYN again, and none goes past it.
func TestOracleEnvoyStopped(t *testing.T) {
	t.Parallel()
	forEachEnvoy(t, func(t *testing.T, w world, envoy *lab.Envoy, _ string) {
		inPod, inPeer := w.echo(t)
		configure(t, w.pod, "core/somaxconn", "8")
		envoy.Restart() // with a backlog of 8
		envoy.WaitForParent()
		resume := envoy.Stop()
		const each = 20
		begun, done := make(chan struct{}, 4*each), make(chan error)
		for _, f := range bothFamilies {
			for from, to := range map[*lab.Host]string{w.pod: external[f], w.peer: podIP[f]} {
				for range each {
					go func() {
						begun <- struct{}{}
						done <- reachLate(from, net.JoinHostPort(to, "9080"))
					}()
				}
			}
		}
		for range 4 * each {
			<-begun
		}
		barrier, err := w.pod.Dial(app, "", "127.0.0.1:9080")
		lab.Check(t, err)
		lab.Check(t, errors.Join(echoes(barrier, "direct"), barrier.Close()))
		if pod, peer := inPod.Load(), inPeer.Load(); pod != 1 || peer != 0 {
			t.Errorf("past Envoy, the pod accepted %d connections, and the peer %d", pod-1, peer)
		}
		resume()
		for range 4 * each {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// reachLate connects to an echo as often as it takes.
func reachLate(from *lab.Host, to string) error {
	for deadline := time.Now().Add(lab.Patience); ; {
		conn, err := from.Dial(app, "", to)
		if err == nil {
			err = errors.Join(echoes(conn, "late"), conn.Close())
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// TestOracleEnvoyOpenConnections updates the rules below open connections: busy and idle ones,
// and one that each side has closed half.
func TestOracleEnvoyOpenConnections(t *testing.T) {
	t.Parallel()
	forEachEnvoy(t, func(t *testing.T, w world, envoy *lab.Envoy, mode string) {
		w.echo(t)
		all := []map[string]*net.TCPConn{w.ways(t), w.ways(t), w.ways(t)} // busy, idle, closed half
		for _, conn := range all[2] {
			lab.Check(t, conn.CloseWrite())
		}
		annotations := map[string]string{"sidecar.istio.io/interceptionMode": mode, "traffic.sidecar.istio.io/excludeOutboundPorts": "9999"}
		updated := decide(t, injected(annotations, nil), dualStack())
		for range 3 {
			netns := open(t, w.pod, config.NFTables)
			_, err := kernel.Replace(t.Context(), netns.Namespace, updated)
			lab.Check(t, errors.Join(err, netns.Close()))
			for name, conn := range all[0] {
				if err := echoes(conn, "busy"); err != nil {
					t.Errorf("%s, busy: %v", name, err)
				}
			}
			accepts(t, envoy, 2, 2, func() error { w.ways(t); return nil })
		}
		for name, conn := range all[1] {
			if err := echoes(conn, "after idling"); err != nil {
				t.Errorf("%s, idle: %v", name, err)
			}
		}
		for name, conn := range all[2] {
			if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil {
				t.Errorf("%s, closed half: %d bytes, %v", name, n, err)
			}
		}
	})
}

// TestOracleEnvoyCrowd holds 5,000 connections at a time. Each takes two open files of this
// process, so no other test runs at the same time.
func TestOracleEnvoyCrowd(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		for _, mode := range modes {
			t.Run(string(backend)+"/"+mode, func(t *testing.T) {
				w, envoy := envoyWorld(t, backend, mode)
				w.echo(t)
				// Under TPROXY, Envoy connects to the application in the client's name from a port that it
				// chooses itself, which must not be a port from which the client has a connection, too.
				configure(t, w.peer, "ipv4/ip_local_port_range", "20000 29999")
				configure(t, w.pod, "ipv4/ip_local_port_range", "30000 60999")
				accepts(t, envoy, 2500, 2500, func() error { return w.crowd(t, 5000) })
			})
		}
	}
}

// crowd opens connections, every other one inbound, and then uses each.
func (w world) crowd(t *testing.T, size int) error {
	var open []*net.TCPConn
	for i := range size {
		from, to := w.pod, external[i/2%2]
		if i%2 == 0 {
			from, to = w.peer, podIP[i/2%2]
		}
		conn, err := from.Dial(app, "", net.JoinHostPort(to, "9080"))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close() })
		open = append(open, conn)
	}
	for i, conn := range open {
		if err := echoes(conn, fmt.Sprint(i)); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return nil
}
