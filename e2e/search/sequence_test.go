// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// sequence is drawn without its ports, so that it can be repeated with fresh ones. Its
// values are few, so that the actions meet each other's leftovers.
type sequence struct {
	family    int
	names     names // what most actions are about, and the connections at the end
	state     string
	inFirst   bool // at the end, the peer connects before the application does
	closeHard bool // sockets end by a reset
	actions   []action
}

// names are an end in the pod and an end outside.
type names struct {
	local      int // podAddresses
	localPort  string
	remote     int // peerAddresses
	remotePort string
}

// Ports by name: own ones are fresh for each run of a sequence.
const (
	own      = "own"
	tunnel   = "15008"
	excluded = "15020"
)

// States of the peer's listener.
const (
	listens = "listens"
	silent  = "is silent" // its backlog is full
	closed  = "does not listen"
)

// action is one step.
type action struct {
	kind  *kind
	by    actor
	at    names
	reuse int
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

const mostActions, mostFenced = 7, 10

func draw(r *rand.Rand, fenced bool) sequence {
	s := sequence{
		family: r.IntN(2), state: pick(r, listens, silent, silent, closed),
		inFirst: r.IntN(2) == 0, closeHard: r.IntN(2) == 0,
		names: names{
			local: pick(r, 0, 0, 0, 1), localPort: pick(r, own, own, own, tunnel, excluded),
			remote: pick(r, 0, 0, 0, 1), remotePort: pick(r, own, own, own, own, own, excluded),
		},
	}
	most := mostActions
	if fenced {
		most = mostFenced
	}
	for range 1 + r.IntN(most) {
		of := kinds
		if fenced && r.IntN(4) > 0 {
			of = datagramKinds
		}
		a := action{kind: pick(r, of...), at: s.names, reuse: pick(r, 0, unix.SO_REUSEADDR, unix.SO_REUSEADDR, unix.SO_REUSEPORT)}
		a.by = pick(r, a.kind.by...)
		switch r.IntN(10) {
		case 0:
			a.at.local = r.IntN(2)
		case 1:
			a.at.remote = r.IntN(2)
		case 2:
			a.at.localPort = pick(r, own, tunnel, excluded)
		case 3:
			a.at.remotePort = pick(r, own, excluded)
		}
		s.actions = append(s.actions, a)
	}
	return s
}

// without returns the sequence without one action.
func (s sequence) without(i int) sequence {
	s.actions = slices.Delete(slices.Clone(s.actions), i, i+1)
	return s
}

// shape is what findings with the same cause have in common.
func (s sequence) shape() string {
	steps := []string{s.names.localPort, s.names.remotePort}
	for _, a := range s.actions {
		steps = append(steps, a.kind.name)
	}
	return strings.Join(steps, ", ")
}

func (s sequence) String() string {
	lines := []string{fmt.Sprintf("IPv%d, %s, the peer %s", 4+2*s.family, s.names, s.state)}
	for _, a := range s.actions {
		line := fmt.Sprintf("%s %s", a.by, a.kind.name)
		if a.at != s.names {
			line += fmt.Sprintf(" (%s)", a.at)
		}
		switch a.reuse {
		case unix.SO_REUSEADDR:
			line += " with SO_REUSEADDR"
		case unix.SO_REUSEPORT:
			line += " with SO_REUSEPORT"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n\t")
}

func (n names) String() string {
	return fmt.Sprintf("pod%s:%s and peer%s:%s", []string{"", "2"}[n.local], n.localPort, []string{"", "2"}[n.remote], n.remotePort)
}
