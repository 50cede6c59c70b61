// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kernels"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// serve lets the proxy answer, and what the application means to reach. A connection
// stays open until its client closes it.
func serve(pod, peer *lab.Host) (stop func()) {
	var listeners []io.Closer
	for _, server := range []struct {
		host     *lab.Host
		at, name string
	}{{pod, ":15001", "proxy"}, {peer, ":80", "direct"}} {
		_ = server.host.Do(func() error {
			listener, err := net.Listen("tcp4", server.at)
			if err != nil {
				return err // nothing answers then, which the attempt shows
			}
			listeners = append(listeners, listener)
			go answer(listener, server.name)
			return nil
		})
	}
	return func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}
}

func answer(listener net.Listener, name string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_ = json.NewEncoder(conn).Encode(name)
		go func() {
			defer conn.Close()
			_, _ = io.Copy(io.Discard, conn)
		}()
	}
}

// ask makes connections, which stay open, and returns what answered each.
func ask(pod *lab.Host, connections int) (answers []string) {
	for range connections {
		var name string
		err := pod.Do(func() error {
			conn, err := net.DialTimeout("tcp4", outside+":80", 3*time.Second)
			if err != nil {
				return err
			}
			open = append(open, conn)
			if err := conn.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
				return err
			}
			return json.NewDecoder(conn).Decode(&name)
		})
		if err != nil {
			name = err.Error()
		}
		answers = append(answers, name)
	}
	return answers
}

// open keeps connections from being closed as garbage.
var open []net.Conn

// repair captures a pod as the guard does, while its connections are open.
func (n node) repair() (repair kernels.Repair, err error) {
	pod, peer, err := newPod()
	if err != nil {
		return repair, err
	}
	defer serve(pod, peer)()
	ask(pod, n.trial.Connections)
	decision, err := lab.Decide(n.meshed(), config.DefaultSettings(), netip.MustParseAddr(podIP))
	if err != nil {
		return repair, err
	}
	netns, err := podnet.Open(context.Background(), pod.Path())
	if err != nil {
		return repair, err
	}
	lost, fault := kernel.Replace(context.Background(), netns, capture.Rules(decision.Intent))
	if lost != nil {
		repair.Lost = lost.Error()
	}
	if fault != nil {
		repair.Fault = fault.Error()
	}
	repair.Answer = ask(pod, 1)[0]
	return repair, errors.Join(netns.Close(), pod.Close(), peer.Close())
}
