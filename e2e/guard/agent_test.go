// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

// Ask answers without a socket, for tests of anything else.
func (n *node) Ask(_ context.Context, request lookup.Request) (lookup.Answer, error) {
	request.Version = capture.PodVersion
	return lookup.ParseAnswer(n.answer(request), request)
}

// answer returns the document with which the agent answers a request.
func (n *node) answer(request lookup.Request) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	if request.Injected {
		return encoded(lookup.Answer{Version: capture.PodVersion, Injected: n.injected()})
	}
	n.reads++
	if n.reading != nil {
		n.reading()
	}
	answer := lookup.Answer{Version: capture.PodVersion}
	if pod := n.pods[request.Pod.Name]; pod == nil {
		answer.Fault = &lookup.Fault{Kind: lookup.Failed, Message: "no API server"}
	} else {
		fields := podfields.Of(pod)
		answer.UID, answer.HasController, answer.Pod = string(pod.UID), podfields.HasController(pod), &fields
		sum := sha256.Sum256(encoded(answer))
		answer.Digest = hex.EncodeToString(sum[:16])
	}
	if answer.Digest != "" && answer.Digest == request.Digest {
		n.unchanged++
		answer = lookup.Answer{Version: capture.PodVersion, Unchanged: true}
	}
	return encoded(answer)
}

// answered returns how many requests were answered.
func (n *node) answered() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reads
}

// injected returns the UIDs of the pods that are injected now.
func (n *node) injected() (uids []string) {
	for _, pod := range n.pods {
		if capture.ExemptionOf(podfields.Of(pod), config.Meshes()).Cause == "" {
			uids = append(uids, string(pod.UID))
		}
	}
	return uids
}

func encoded(answer lookup.Answer) []byte {
	document, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return document
}

// serveIn answers requests at the socket of a run directory, until stop is called or
// the test ends. It returns the socket's path.
func (n *node) serveIn(t *testing.T, runDir string) (socket string, stop func()) {
	t.Helper()
	socket = config.PodsSocket(filepath.Join(runDir, config.AgentSocketName))
	lab.Check(t, os.MkdirAll(filepath.Dir(socket), 0o700))
	listener, err := net.Listen("unix", socket)
	lab.Check(t, err)
	stop = func() { _ = listener.Close() }
	t.Cleanup(stop)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go n.serve(conn)
		}
	}()
	return socket, stop
}

func (n *node) serve(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err := conn.Write([]byte{lookup.Accepted})
	document, readErr := lookup.ReadMessage(conn, lookup.MaxRequest)
	var request lookup.Request
	if errors.Join(err, readErr) == nil && json.Unmarshal(document, &request) == nil {
		_ = lookup.WriteMessage(conn, n.answer(request)) // the guard may have ended
	}
}
