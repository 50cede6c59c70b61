// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// haproxyConfig is a sidecar: it asks the kernel for the destination that a
// connection was meant for, and goes there; inbound from 127.0.0.6.
const haproxyConfig = `
defaults
  mode tcp
  timeout connect 3s
  timeout client 5s
  timeout server 5s
frontend outbound
  bind :15001
  default_backend onwards
frontend inbound
  bind :15006
  default_backend application
frontend ready
  bind :15021
  tcp-request connection reject
backend onwards
  server original 0.0.0.0:0
backend application
  source 127.0.0.6
  server original 0.0.0.0:0
`

// TestHAProxy runs a real transparent proxy as the sidecar. Both sides see
// their connection through: the application's goes out by the proxy, and what
// comes in is handed on from 127.0.0.6, which no rule may capture again.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newLinks(t)
		w.serve(t, w.peer, "tcp", 80, direct)
		w.serve(t, w.pod, "tcp", 8080, direct)
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, nil), dualStack())))
		startHAProxy(t, w.pod)

		for _, to := range []struct {
			name            string
			from            *lab.Host
			address, client string // and what the server sees as its client
		}{
			{"outbound", w.pod, external[ipv4] + ":80", podIP[ipv4]},
			{"inbound", w.peer, podIP[ipv4] + ":8080", proxySource[ipv4]},
			{"through a service that leads back to the pod", w.pod, serviceVIP[ipv4] + ":8080", proxySource[ipv4]}, // it passes the proxy twice
		} {
			answer, err := to.from.Ask(app, "tcp", "", to.address)
			lab.Check(t, err)
			if got := answer.Client.Addr().Unmap().String(); answer.Server != direct || got != to.client {
				t.Errorf("%s: %s answers, and sees %s as its client", to.name, answer.Server, got)
			}
		}
	})
}

// startHAProxy starts it in the pod with the proxy's ids, and waits until it listens.
func startHAProxy(t *testing.T, pod *lab.Host) {
	t.Helper()
	dir, err := os.MkdirTemp("", "haproxy-")
	lab.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	lab.Check(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "haproxy.cfg")
	lab.Check(t, os.WriteFile(path, []byte(haproxyConfig), 0o644))
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, "haproxy", "-db", "-f", path)
	command.Dir, command.Stdout, command.Stderr = "/", &log, &log // haproxy returns there, and could not below root's home
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1337, Gid: 1337}}
	lab.Check(t, pod.Do(command.Start))
	t.Cleanup(func() {
		cancel()
		_ = command.Wait() // killed on purpose
		if t.Failed() {
			t.Log(log.String())
		}
	})
	lab.Eventually(t, func() error { return pod.Do(dialReady) })
}

func dialReady() error {
	conn, err := net.Dial("tcp", "127.0.0.1:15021")
	if err != nil {
		return err
	}
	return conn.Close()
}
