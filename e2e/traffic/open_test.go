// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// server says who it is, then repeats what it reads until the client ends.
type server struct{ listener net.Listener }

// listen makes a server that accepts nothing yet. Only a proxy's is transparent.
func listen(t *testing.T, host *lab.Host, owner lab.Owner, port int) *server {
	t.Helper()
	s := &server{}
	var err error
	if owner == proxy {
		s.listener, err = host.ListenTransparently(owner, fmt.Sprintf(":%d", port))
	} else {
		err = host.Do(func() (err error) {
			s.listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		})
	}
	lab.Check(t, err)
	t.Cleanup(func() { _ = s.listener.Close() })
	return s
}

func (s *server) serve(name string) {
	go func() {
		for {
			conn, err := s.listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = json.NewEncoder(conn).Encode(lab.Answer{Server: name})
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// openWorld is a pod and a peer whose servers keep their connections.
func openWorld(t *testing.T) world {
	t.Helper()
	w := newLinks(t)
	listen(t, w.pod, proxy, 15006).serve(inbound)
	listen(t, w.pod, proxy, 15001).serve(outbound)
	for _, port := range []int{8080, 15021} {
		listen(t, w.pod, app, port).serve(direct)
	}
	for _, port := range []int{80, 9000, 15020} {
		listen(t, w.peer, rootUser, port).serve(direct)
	}
	return w
}

// open begins a connection, from a port or from any, and wants the probe's server.
func (w world) open(p probe, f family, port int) (*net.TCPConn, error) {
	host := w.pod
	if p.remote {
		host = w.peer
	}
	from := net.JoinHostPort([...]string{"0.0.0.0", "::"}[f], strconv.Itoa(port))
	conn, err := host.Dial(p.by, from, net.JoinHostPort(p.to[f], strconv.Itoa(p.port)))
	if err != nil {
		return nil, err
	}
	var answer lab.Answer
	err = errors.Join(conn.SetDeadline(time.Now().Add(10*time.Second)), json.NewDecoder(conn).Decode(&answer))
	if err == nil && answer.Server != p.want {
		err = fmt.Errorf("answered by %q", answer.Server)
	}
	return conn, err
}

// lives sends a byte and wants it back.
func lives(conn *net.TCPConn) error {
	_, err := conn.Write([]byte{'.'})
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	return err
}

// vanish ends a connection without a word to the server, or to conntrack.
func vanish(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var optionErr error
	// A socket under repair sends nothing when it is closed.
	err = raw.Control(func(fd uintptr) { optionErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) })
	return errors.Join(err, optionErr, conn.Close())
}

// withoutNet1 is a pod whose interface net1 is not captured.
func withoutNet1(mode string) *corev1.Pod {
	pod := injected(spelled(map[string]string{"excludeInterfaces": "net1"}), nil)
	pod.Annotations["sidecar.istio.io/interceptionMode"] = mode
	return pod
}

// TestVanishedClient: a client connects from the port of a connection that its server still
// has. The server answers the SYN with an acknowledgement, the client resets that connection,
// and its next SYN begins the new one.
func TestVanishedClient(t *testing.T) {
	t.Parallel()
	probes := []probe{
		in(podIP, 8080, inbound), out(app, external, 80, outbound), out(app, external, 15020, direct),
		out(proxy, external, 80, direct), out(app, localhost, 8080, direct),
		in(podIP, 15021, direct), in(secondIP, 8080, direct), out(app, secondPeer, 80, direct),
	}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			t.Run(mode, func(t *testing.T) {
				w := openWorld(t)
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, withoutNet1(mode), dualStack())))
				var all sync.WaitGroup
				for i, p := range probes {
					for _, f := range bothFamilies {
						all.Go(func() {
							port := 20000 + 2*i + int(f)
							conn, err := w.open(p, f, port)
							if err == nil {
								err = vanish(conn)
							}
							if err == nil {
								conn, err = w.open(p, f, port)
							}
							if err == nil {
								err = errors.Join(lives(conn), conn.Close())
							}
							if err != nil {
								t.Errorf("%v %+v: %v", f, p, err)
							}
						})
					}
				}
				all.Wait()
			})
		}
	})
}

// TestReset: the reset of a client that has vanished ends the proxy's connection, even one to an address that is not
// the pod's own.
func TestReset(t *testing.T) {
	t.Parallel()
	forwarded := dst{"198.51.100.9", "2001:db8:51::9"}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			t.Run(mode, func(t *testing.T) {
				w := newLinks(t)
				configure(t, w.pod, "ipv4/tcp_early_demux", "0") // it delivers some resets that the rules do not
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, withoutNet1(mode), dualStack())))
				run("ip", "route", "add", forwarded[ipv4], "via", podIP[ipv4])(t, w.peer)
				run("ip", "-6", "route", "add", forwarded[ipv6], "via", podIP[ipv6])(t, w.peer)
				listener, err := w.pod.ListenTransparently(proxy, ":15006")
				lab.Check(t, err)
				t.Cleanup(func() { _ = listener.Close() })
				for _, f := range bothFamilies {
					for _, to := range []dst{podIP, forwarded} {
						conn, err := w.peer.Dial(app, "", net.JoinHostPort(to[f], "8080"))
						lab.Check(t, err)
						accepted, err := listener.Accept()
						lab.Check(t, err)
						lab.Check(t, vanish(conn))
						if err := provoke(accepted); !errors.Is(err, unix.ECONNRESET) {
							t.Errorf("%v, to %s: the proxy gets %v, want a reset", f, to[f], err)
						}
						lab.Check(t, accepted.Close())
					}
				}
			})
		}
	})
}

// provoke sends bytes until an error comes: a reset, without ACK, answers what no socket has. A
// process between fork and exec may still hold a copy of the socket.
func provoke(conn net.Conn) error {
	for deadline := time.Now().Add(3 * time.Second); ; {
		if _, err := conn.Write([]byte{'.'}); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, 1)); !isTimeout(err) || time.Now().After(deadline) {
			return err
		}
	}
}

// TestReplacedRules: connections live on while a guard replaces rules by nftables, whether
// they began before the pod had any, or under those of any backend.
func TestReplacedRules(t *testing.T) {
	t.Parallel()
	captured := []probe{
		in(podIP, 8080, inbound), out(app, external, 80, outbound), out(app, external, 15020, direct),
		out(proxy, external, 80, direct), out(app, localhost, 8080, direct),
	}
	uncaptured := []probe{
		in(podIP, 8080, direct), out(app, external, 80, direct), out(app, external, 15020, direct),
		out(proxy, external, 80, direct), out(app, localhost, 8080, direct),
	}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			for _, began := range []struct {
				name     string
				captured bool
				probes   []probe
			}{{"before an ADD", false, uncaptured}, {"after it", true, captured}} {
				if !began.captured && backend != config.NFTables {
					continue // the backend is that of the rules before
				}
				t.Run(mode+", "+began.name, func(t *testing.T) {
					w := openWorld(t)
					netns := open(t, w.pod, backend)
					rules := func(annotations map[string]string) capture.Ruleset {
						pod := injected(spelled(annotations), nil)
						pod.Annotations["sidecar.istio.io/interceptionMode"] = mode
						return decide(t, pod, dualStack())
					}
					first, newer := rules(nil), rules(map[string]string{"excludeOutboundPorts": "9000"})
					if began.captured {
						lab.Check(t, netns.Apply(first))
					}
					conns := map[string]*net.TCPConn{}
					for _, f := range bothFamilies {
						for _, p := range began.probes {
							conn, err := w.open(p, f, 0)
							lab.Check(t, err)
							t.Cleanup(func() { _ = conn.Close() })
							conns[fmt.Sprintf("%v %+v", f, p)] = conn
						}
					}
					for i, rs := range []capture.Ruleset{first, newer, newer} {
						lost, err := kernel.Replace(t.Context(), netns.Namespace, rs)
						lab.Check(t, errors.Join(lost, err))
						for name, conn := range conns {
							if err := errors.Join(lives(conn), lives(conn)); err != nil {
								t.Errorf("replacement %d: %s: %v", i, name, err)
							}
						}
						for _, f := range bothFamilies {
							for _, p := range captured[:2] {
								if conn, err := w.open(p, f, 0); err != nil {
									t.Errorf("replacement %d: %v %+v: %v", i, f, p, err)
								} else {
									lab.Check(t, conn.Close())
								}
							}
						}
					}
				})
			}
		}
	})
}
