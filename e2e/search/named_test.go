// SPDX-License-Identifier: Apache-2.0

package search

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// named is a sequence with a name, and how often it runs in each world: not each run of a
// sequence with a race in it would fail.
type named struct {
	name string
	runs int
	sequence
}

// TestSequences runs sequences with a name in each world: the shortest forms of what searches
// found and which is mended, and ways around capture that conntrack's memory would open.
func TestSequences(t *testing.T) {
	lab.RequireRoot(t)
	all := []named{
		{"an answer to what the proxy hands on, which conntrack assigns to no connection", 20, between(own, silent, actions(t,
			proxy, "connects out", unix.SO_REUSEADDR, peer, "sends an ICMP error", unix.SO_REUSEADDR, app, "listens", unix.SO_REUSEADDR,
			peer, "sends a SYN-ACK", unix.SO_REUSEPORT, proxy, "hands a connection on", unix.SO_REUSEADDR))},
		{"an ACK of the server, which the pod drops silently", 4, between(excluded, listens, actions(t, peer, "sends a signed ACK", 0))},
		{"a SYN of the server, which the pod drops silently", 4, between(excluded, listens, actions(t, peer, "sends a signed SYN", 0))},
		{"a SYN that died on lo", 4, between(own, listens, actions(t, app, "connects on lo", unix.SO_REUSEADDR))},
		{"a SYN of the application by net1", 4, between(own, silent, actions(t, app, "connects on net1", unix.SO_REUSEADDR))},
		{"a SYN of the proxy", 4, between(own, silent, actions(t, proxy, "connects out", unix.SO_REUSEADDR))},
		{"a SYN forged in the server's name", 4, between(own, listens, actions(t,
			app, "listens with a full backlog", unix.SO_REUSEADDR, app, "connects to the pod as the peer", unix.SO_REUSEADDR))},
		{"a SYN of the client by net1", 4, between(own, listens, actions(t,
			app, "listens with a full backlog", unix.SO_REUSEADDR, peer2, "sends a SYN as the other peer", 0))},
		{"an answer to a datagram in the peer's name", 4, between(own, closed, actions(t,
			app2, "sends UDP to the pod as the peer", unix.SO_REUSEADDR, app2, "sends UDP", unix.SO_REUSEADDR))},
		{"an answer to a datagram that died on lo", 4, between(own, closed, actions(t,
			app, "sends UDP on lo", unix.SO_REUSEADDR, app, "waits for UDP", unix.SO_REUSEADDR, peer, "sends UDP in", 0))},
		{"an answer in the peer's name to a datagram of the proxy", 4, onSecondLink(own, closed, actions(t,
			proxy, "sends UDP out", unix.SO_REUSEADDR, app, "sends UDP to the pod as the peer, on eth0", unix.SO_REUSEPORT))},
		{"an answer by the entry of the proxy's closed socket", 4, between(own, closed, actions(t,
			proxy, "sends UDP out", unix.SO_REUSEADDR, peer, "sends UDP in", 0, proxy, "closes", 0, app, "sends UDP", unix.SO_REUSEADDR))},
	}
	var worlds sync.WaitGroup
	for _, setting := range settings(rand.New(rand.NewPCG(1, 2))) {
		worlds.Go(func() {
			if err := tryNamed(t, setting, all); err != nil {
				t.Error(err)
			}
		})
	}
	worlds.Wait()
}

// tryNamed runs sequences in a world, in both families, with either verdict first.
func tryNamed(t *testing.T, setting setting, all []named) error {
	w, err := newWorld(t.Context(), setting)
	if err != nil {
		return err
	}
	for _, s := range all {
		for n := range s.runs {
			s.family, s.inFirst = n%2, n%4 < 2
			if result, err := w.try(t.Context(), s.sequence); err != nil || result.failed() {
				t.Errorf("%s, %s: %s, %v\n\t%s", setting, s.name, result, err, s.sequence)
				break
			}
		}
	}
	return w.close()
}

// between is a sequence about a port of the pod and one of the peer's own.
func between(localPort, state string, steps []action) sequence {
	return about(names{localPort: localPort, remotePort: own}, state, steps)
}

func onSecondLink(localPort, state string, steps []action) sequence {
	return about(names{local: 1, localPort: localPort, remote: 1, remotePort: own}, state, steps)
}

func about(at names, state string, steps []action) sequence {
	for i := range steps {
		steps[i].at = at
	}
	return sequence{state: state, names: at, actions: steps}
}

// actions reads actors, their actions and the options of their sockets.
func actions(t *testing.T, words ...any) (all []action) {
	t.Helper()
	for step := range slices.Chunk(words, 3) {
		i := slices.IndexFunc(allKinds, func(k *kind) bool { return k.name == step[1] })
		if i < 0 {
			t.Fatalf("there is no action %q", step[1])
		}
		all = append(all, action{kind: allKinds[i], by: step[0].(actor), reuse: step[2].(int)})
	}
	return all
}
