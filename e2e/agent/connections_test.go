// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestIdleConnections holds 15,000 connections to the agent, some silent, some after a
// request: the kubelet's probe is answered all the while, in little memory.
func TestIdleConnections(t *testing.T) {
	const connections, most = 15_000, 64 << 20
	n := newNode(t)
	a := n.StartReady(t, "--mode", "insert")
	var limit unix.Rlimit
	lab.Check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if want := uint64(connections + 1000); limit.Cur < want {
		limit.Cur, limit.Max = want, max(limit.Max, want)
		lab.Check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	}
	address := strings.TrimPrefix(a.URL, "http://")
	for i := range connections {
		conn, err := net.Dial("tcp", address)
		lab.Check(t, err)
		defer conn.Close()
		if i%2 == 0 {
			_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: agent\r\n\r\n") // fails if it was closed already
		}
		if i%1000 == 0 {
			expectAlive(t, a)
		}
	}
	expectAlive(t, a)
	peak := peakMemory(t, a)
	t.Logf("%d connections: the agent took %d MiB at most", connections, peak>>20)
	if peak > most {
		t.Errorf("%d connections made the agent take %d MiB, expected at most %d", connections, peak>>20, most>>20)
	}
}

func expectAlive(t *testing.T, a *machine.Agent) {
	t.Helper()
	if status, body := a.Get("/healthz"); status != http.StatusOK {
		t.Fatalf("/healthz: %d, %s", status, body)
	}
}
