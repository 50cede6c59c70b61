// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// echoes is how many bytes a connection of the proxy sends and gets back, one after the
// other, in each round.
const echoes = 2000

// talk is an established connection of the proxy to a peer, in a pod of one kind. One thread
// holds both ends, so that no wait for another one is measured.
type talk struct {
	backend   config.Backend
	name      string
	list      // its pod and peer
	out, back int
	took      []time.Duration // of one packet; one in each round
}

// packets compares what one packet of the proxy costs with the rules of a pod, and with those
// of a pod that has a fence.
func (b *bench) packets(rounds int) (err error) {
	if err := b.answerPods(); err != nil {
		return err
	}
	var talks []*talk
	defer func() {
		for _, t := range talks {
			err = errors.Join(err, t.close())
		}
	}()
	for _, backend := range backends {
		for _, name := range []string{"web", "fenced"} {
			t := &talk{backend: backend, name: name, out: -1, back: -1}
			talks = append(talks, t)
			if err := errors.Join(t.connectHosts(), b.capture(t)); err != nil {
				return err
			}
			if err := t.establish(); err != nil {
				return err
			}
		}
	}
	for i := range rounds {
		if i%100 == 0 {
			progress("packets, round %d of %d", i, rounds)
		}
		for _, t := range talks {
			if err := errors.Join(b.ctx.Err(), t.echo()); err != nil {
				return err
			}
		}
	}
	return b.printPackets(talks)
}

func (b *bench) capture(t *talk) error {
	_, err := measure(b.call("ADD", t.name, t.pod.Path(), by(t.backend)))
	return err
}

// establish connects a socket of the proxy to a listener of the peer.
func (t *talk) establish() (err error) {
	server := netip.AddrPortFrom(capturedServer.Addr(), 80)
	var listener net.Listener
	if err := t.peer.Do(func() (err error) {
		listener, err = net.Listen("tcp4", server.String())
		return err
	}); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	err = t.pod.Do(func() (err error) {
		if t.out, err = socketOf(proxy); err != nil {
			return err
		}
		return unix.Connect(t.out, &unix.SockaddrInet4{Addr: server.Addr().As4(), Port: int(server.Port())})
	})
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	conn, err := listener.Accept()
	if err != nil {
		return fmt.Errorf("accepting: %w", err)
	}
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return fmt.Errorf("taking the socket: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close(), conn.Close()) }()
	if t.back, err = unix.Dup(int(file.Fd())); err != nil {
		return fmt.Errorf("taking the socket: %w", err)
	}
	return errors.Join(
		unix.SetNonblock(t.back, false),
		unix.SetsockoptInt(t.out, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptInt(t.back, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
}

// echo sends a byte there and back. Each end acknowledges a byte with its own, so that two
// packets are one round trip, the first of them through the pod's rules for what leaves it,
// and the second through those for what arrives.
func (t *talk) echo() error {
	b := make([]byte, 1)
	start := time.Now()
	for range echoes {
		for _, pair := range [][2]int{{t.out, t.back}, {t.back, t.out}} {
			if _, err := unix.Write(pair[0], b); err != nil {
				return fmt.Errorf("sending a byte: %w", err)
			}
			if _, err := unix.Read(pair[1], b); err != nil {
				return fmt.Errorf("receiving a byte: %w", err)
			}
		}
	}
	t.took = append(t.took, time.Since(start)/(2*echoes))
	return nil
}

func (t *talk) close() error {
	errs := []error{t.list.close()}
	for _, fd := range []int{t.out, t.back} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// proxy owns the sidecar's sockets.
var proxy = lab.Owner{UID: 1337, GID: 1337}

// printPackets compares each pod that has a fence with the one before it, which has none.
func (b *bench) printPackets(talks []*talk) error {
	lines := []string{"BACKEND\tPOD\tONE PACKET OF THE PROXY p50 ns\tMORE ns\tx WITHOUT\tTARGET"}
	var without *talk
	for _, t := range talks {
		p50 := percentile(t.took, 50)
		if t.name == "web" {
			without = t
			lines = append(lines, fmt.Sprintf("%s\tcaptured\t%d\t-\t-\t", t.backend, p50.Nanoseconds()))
			continue
		}
		lines = append(lines, fmt.Sprintf("%s\tcaptured and fenced\t%d\t%d\t%.2f\t100 ns more", t.backend, p50.Nanoseconds(),
			(p50-percentile(without.took, 50)).Nanoseconds(), ratio(t.took, without.took)))
	}
	return b.Print(lines...)
}
