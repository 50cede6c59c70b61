// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestRepairUnderLoad repairs pods while connections speak, and others begin,
// all the time: none ends, and none fails to begin. It runs by itself, because it takes all
// processors.
func TestRepairUnderLoad(t *testing.T) {
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		for i := range 3 {
			t.Run(fmt.Sprintf("%s %d", mode, i), func(t *testing.T) { repairUnderLoad(t, mode) })
		}
	}
}

// speaker repeats something.
type speaker struct {
	what  string
	count atomic.Int32
	speak func() error
}

func repairUnderLoad(t *testing.T, mode string) {
	n := newNode()
	p := n.run(t, "web")
	n.dualStack(t, p, mode)
	echo(t, p.host, inboundPort, lab.Transparent)
	echo(t, p.host, 15001, lab.Transparent)
	echo(t, p.host, echoPort, nil)
	echo(t, p.peer, echoPort, nil)
	targets := map[string]*lab.Host{podAddress: p.peer, podAddress6: p.peer, peerAddress: p.host, peerAddress6: p.host}
	var all speakers
	for address, from := range targets {
		to := net.JoinHostPort(address, fmt.Sprint(echoPort))
		for range 10 {
			conn := dial(t, from, to)
			all = append(all, &speaker{what: "a connection to " + to, speak: func() error { return works(conn) }})
		}
		all = append(all, &speaker{what: "new connections to " + to, speak: func() error { return reach(from, to) }})
	}
	speaking := speak(t, all)
	speaking.wait(t)
	n.newGuard(t, options{}).finds(t, report.Captured)
	speaking.wait(t)
}

// speakers do something again and again.
type speakers []*speaker

// speak has each speak until the test ends. One that fails fails the test.
func speak(t *testing.T, all speakers) speakers {
	var speaking sync.WaitGroup
	for _, s := range all {
		speaking.Go(func() {
			for t.Context().Err() == nil {
				if err := s.speak(); err != nil {
					t.Errorf("%s: %v", s.what, err)
					return
				}
				s.count.Add(1)
				time.Sleep(10 * time.Millisecond) // leaves the guard a processor: after a second it gives up entering connections
			}
		})
	}
	t.Cleanup(speaking.Wait) // the test's context has ended
	return all
}

// wait waits until each has begun and ended something since.
func (all speakers) wait(t *testing.T) {
	t.Helper()
	for _, s := range all {
		before := s.count.Load()
		lab.Eventually(t, func() error {
			if now := s.count.Load(); now < before+2 && !t.Failed() {
				return fmt.Errorf("%s: %d times, %d before", s.what, now, before)
			}
			return nil
		})
	}
}
