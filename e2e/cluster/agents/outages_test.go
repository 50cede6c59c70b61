// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// outages are the ways in which an agent does not answer requests of pods.
var outages = []struct {
	name     string
	begin    func(t *testing.T, node *cluster.Node) (end func())
	shortest time.Duration // until the plugin reads a pod from the API server
}{
	{"killed", killAgent, 0},
	{"stopped", stopAgent, 100 * time.Millisecond},
	{"hung", hangAgent, time.Second},
}

// killAgent kills a node's agent while its kubelet, which would start the next one, does
// not run.
func killAgent(t *testing.T, node *cluster.Node) (end func()) {
	t.Helper()
	lab.Check(t, node.StopKubelet())
	signalAgent(t, node, "KILL")
	return once(t, func() { lab.Check(t, node.StartKubelet()) })
}

// stopAgent stops a node's agent. The kernel accepts its connections.
func stopAgent(t *testing.T, node *cluster.Node) (end func()) {
	t.Helper()
	signalAgent(t, node, "STOP")
	return once(t, func() { signalAgent(t, node, "CONT") })
}

// signalAgent sends a signal to a node's agent.
func signalAgent(t *testing.T, node *cluster.Node, signal string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // in cleanups too
	out, err := node.Command(ctx, "pgrep", "--full", "^/capture-cni-node run ").Output()
	lab.Check(t, err)
	lab.Check(t, node.Command(ctx, "kill", "-"+signal, strings.TrimSpace(string(out))).Run())
}

// once returns a function that runs f once, at the end of the test if not before.
func once(t *testing.T, f func()) func() {
	end := sync.OnceFunc(f)
	t.Cleanup(end)
	return end
}

const podsSocket = "/run/capture-cni/sockets/pods.sock"

// hangAgent replaces an agent's socket by one at which requests are accepted and never
// answered. The end closes their connections.
func hangAgent(t *testing.T, node *cluster.Node) (end func()) {
	t.Helper()
	path := node.Path(podsSocket)
	lab.Check(t, os.Rename(path, path+".agent"))
	listener, err := net.Listen("unix", path)
	lab.Check(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	ours, err := os.Lstat(path)
	lab.Check(t, err)
	var mu sync.Mutex
	open := []io.Closer{listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte{lookup.Accepted})
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
		}
	}()
	return once(t, func() {
		found, err := os.Lstat(path)
		lab.Check(t, err)
		if os.SameFile(ours, found) {
			lab.Check(t, os.Rename(path+".agent", path))
		} else { // the agent has noticed, and listens at a new one
			lab.Check(t, os.Remove(path+".agent"))
		}
		mu.Lock()
		defer mu.Unlock()
		var errs []error
		for _, closer := range open {
			errs = append(errs, closer.Close())
		}
		lab.Check(t, errors.Join(errs...))
	})
}
