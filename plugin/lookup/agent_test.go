// SPDX-License-Identifier: Apache-2.0

package lookup_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// agent answers requests as a test wants.
type agent struct {
	socket   string
	requests atomic.Int64
}

// serve handles each connection in a goroutine until the test ends.
func serve(t *testing.T, handle func(net.Conn)) *agent {
	t.Helper()
	a := &agent{socket: filepath.Join(t.TempDir(), "pods.sock")}
	a.serve(t, handle)
	return a
}

func (a *agent) serve(t *testing.T, handle func(net.Conn)) {
	t.Helper()
	listener, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			a.requests.Add(1)
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
}

// answering accepts a connection and sends the same answer to every request.
func answering(answer lookup.Answer) func(net.Conn) { return answeringAfter(0, answer) }

func answeringAfter(pause time.Duration, answer lookup.Answer) func(net.Conn) {
	document, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return func(conn net.Conn) {
		_, _ = conn.Write([]byte{lookup.Accepted})
		if _, err := lookup.ReadMessage(conn, lookup.MaxRequest); err == nil {
			time.Sleep(pause)
			_ = lookup.WriteMessage(conn, document)
		}
	}
}

func theAgents() lookup.Answer {
	return lookup.Answer{Version: capture.PodVersion, UID: wanted.UID, Pod: &capture.Pod{RuntimeClass: "by the agent"}}
}

func faulty(kind lookup.FaultKind, message string) lookup.Answer {
	return lookup.Answer{Version: capture.PodVersion, Fault: &lookup.Fault{Kind: kind, Message: message}}
}

func ofVersion(version int) lookup.Answer {
	answer := theAgents()
	answer.Version = version
	return answer
}

func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// onlyOf answers requests of the answer's version with it, and others with nothing but that
// version, as agents of every release do.
func onlyOf(answer lookup.Answer) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = conn.Write([]byte{lookup.Accepted})
		document, err := lookup.ReadMessage(conn, lookup.MaxRequest)
		var request lookup.Request
		if err != nil || json.Unmarshal(document, &request) != nil {
			return
		}
		sent := lookup.Answer{Version: answer.Version}
		if request.Version == answer.Version {
			sent = answer
		}
		document, _ = json.Marshal(sent)
		_ = lookup.WriteMessage(conn, document)
	}
}

// TestAgentOfEarlierRelease asks an agent that answers another version by its own and nothing else, as
// agents of every release do. What the first one's version lacks is unknown, and not absent.
func TestAgentOfEarlierRelease(t *testing.T) {
	t.Parallel()
	for version := capture.OldestPodVersion; version < capture.PodVersion; version++ {
		a := serve(t, onlyOf(ofVersion(version)))
		answer, err := lookup.Agent{Socket: a.socket}.Ask(t.Context(), lookup.Request{Pod: wanted})
		lab.Check(t, err)
		unknown := slices.Equal(answer.Pod.Groups, []int64{capture.AnyGroup})
		if answer.Pod.RuntimeClass != "by the agent" || unknown != (version < 2) {
			t.Errorf("version %d: got %+v", version, answer.Pod)
		}
	}
}

// TestAgentFirst expects the agent's pod, or the API server's where the agent has
// none, and the errors of both ways where neither has.
func TestAgentFirst(t *testing.T) {
	const ours = capture.PodVersion
	for _, test := range []struct {
		name  string
		agent func(net.Conn) // nil: no socket
		by    string         // the pod's runtime class with credentials; a part of the error where the pod is nowhere
		alone string         // a part of the error without credentials
	}{
		{"answers", answering(theAgents()), "by the agent", ""},
		{"does not run", nil, "runc", "no such file"},
		{"does not accept", silent, "runc", "did not accept the connection within 100ms"},
		{"refuses a connection too many", func(net.Conn) {}, "runc", "did not accept the connection"},
		{"says nothing it should", func(conn net.Conn) { _, _ = conn.Write([]byte{0}) }, "runc", "the first byte is 0x0"},
		{"does not answer", func(conn net.Conn) { _, _ = conn.Write([]byte{lookup.Accepted}); silent(conn) }, "runc", "deadline exceeded"},
		{"breaks off", func(conn net.Conn) {
			_, _ = conn.Write([]byte{lookup.Accepted, 0, 0})
			_, _ = lookup.ReadMessage(conn, lookup.MaxRequest)
		}, "runc", "EOF"},
		{"answers without end", func(conn net.Conn) {
			_, _ = conn.Write([]byte{lookup.Accepted})
			_, _ = lookup.ReadMessage(conn, lookup.MaxRequest)
			_, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff})
		}, "runc", "a message of 4294967295 bytes: expected at most"},
		{"answers no JSON", func(conn net.Conn) {
			_, _ = conn.Write([]byte{lookup.Accepted})
			_, _ = lookup.ReadMessage(conn, lookup.MaxRequest)
			_ = lookup.WriteMessage(conn, []byte("pod"))
		}, "runc", "reading the answer"},
		{"is of an older version", answering(ofVersion(capture.OldestPodVersion - 1)), "runc", fmt.Sprintf("version %d of a pod's fields, expected %d", capture.OldestPodVersion-1, capture.PodVersion)},
		{"is of a newer version", answering(ofVersion(capture.PodVersion + 1)), "runc", fmt.Sprintf("version %d of a pod's fields", capture.PodVersion+1)},
		{"has another pod", answering(lookup.Answer{Version: capture.PodVersion, UID: "other", Pod: &capture.Pod{}}), "runc", "UID other, expected"},
		{"has no pod in its answer", answering(lookup.Answer{Version: capture.PodVersion}), "runc", "it has no pod"},
		{"has not changed since an answer that was none", answering(lookup.Answer{Version: ours, Unchanged: true}), "runc", "it has no pod"},
		{"has a pod without a UID", answering(lookup.Answer{Version: ours, Pod: &capture.Pod{}}), "runc", "it has no pod"},
		{"reaches no API server", answering(faulty(lookup.Failed, "connection refused")), "runc", "connection refused"},
		{"may not read", answering(faulty(lookup.Refused, "forbidden")), "runc", "forbidden"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := &agent{socket: "/nonexistent/pods.sock"}
			if test.agent != nil {
				a = serve(t, test.agent)
			}
			n := newNode(t)
			n.Put(podWithUID(wanted.UID))
			asked := n.settings()
			asked.Agent.Socket, asked.Timeout = a.socket, patience
			if test.name == "does not accept" {
				asked.Agent.AcceptTimeout = 0 // as the plugin does
			}
			began := time.Now()
			found, err := asked.Pod(t.Context(), wanted)
			if err != nil || found.Pod.RuntimeClass != test.by {
				t.Errorf("got %+v, %v, want the pod %s", found, err, test.by)
			}
			if took := time.Since(began); took > 10*time.Second { // the agent may take longer
				t.Errorf("took %s", took)
			}
			if requests := n.Requests(); (requests == 0) != (test.by == "by the agent") {
				t.Errorf("%d requests reached the API server", requests)
			}
			remove(t, n.dir+"/kubeconfig")
			asked.SingleAttempt = true
			if test.name == "does not answer" {
				asked.Timeout = budget
			}
			_, err = asked.Pod(t.Context(), wanted)
			switch {
			case test.alone == "" && err != nil:
				t.Error(err)
			case test.alone != "":
				expectFault(t, err, test.alone)
				expectFault(t, err, "asking the node agent at "+a.socket)
				expectFault(t, err, "kubeconfig: no such file")
			}
		})
	}
}

// TestGonePodIsNotAskedTwice expects no request to the API server for a pod that the
// agent has not found there, and few of the agent: pauses double.
func TestGonePodIsNotAskedTwice(t *testing.T) {
	t.Parallel()
	a := serve(t, answering(faulty(lookup.Gone, "the API server has no pod shop/web")))
	n := newNode(t)
	asked := n.settings()
	asked.Agent.Socket, asked.Timeout = a.socket, 2*time.Second
	_, err := asked.Pod(t.Context(), wanted)
	expectFault(t, err, "has no pod shop/web")
	if !lookup.IsGone(err) || n.Requests() != 0 || a.requests.Load() < 2 || a.requests.Load() > 8 {
		t.Errorf("gone %v after %d requests of the agent and %d of the API server", lookup.IsGone(err), a.requests.Load(), n.Requests())
	}
}

// TestAgentIsWaitedFor starts the agent of a node without credentials during a lookup.
func TestAgentIsWaitedFor(t *testing.T) {
	t.Parallel()
	a := &agent{socket: filepath.Join(t.TempDir(), "pods.sock")}
	n := newNode(t)
	remove(t, n.dir+"/kubeconfig")
	asked := n.settings()
	asked.Agent.Socket, asked.Timeout = a.socket, 20*time.Second
	time.AfterFunc(500*time.Millisecond, func() { a.serve(t, answering(theAgents())) })
	if found, err := asked.Pod(t.Context(), wanted); err != nil || found.Pod.RuntimeClass != "by the agent" {
		t.Errorf("got %+v, %v", found, err)
	}
}

// TestNothingIsLeft asks for a pod on a node without agent and credentials: with an
// agent's socket in the configuration until the timeout, else once.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	remove(t, n.dir+"/"+"capture-cni-lookup")
	asked := n.settings()
	_, err := asked.Pod(t.Context(), wanted)
	expectFault(t, err, "attempt 1, not retried")
	expectFault(t, err, "capture-cni-lookup: no such file")
	asked.Agent.Socket, asked.Timeout = "/nonexistent/pods.sock", 500*time.Millisecond
	_, err = asked.Pod(t.Context(), wanted)
	expectFault(t, err, "lookupTimeout of 500ms leaves no time for a retry")
}

// TestBrokenProgram executes programs other than capture-cni-lookup.
func TestBrokenProgram(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo no credentials >&2; exit 3": "exit status 3\nno credentials",
		"echo hello":                      "reading the answer",
		"yes":                             "more than 4194304 bytes of output",
		"exec yes >&2":                    "signal: broken pipe\ny\ny\n",
		"sleep 60":                        "deadline exceeded",
		"sleep 60 & echo '{}'":            "WaitDelay expired",
		`echo '{"version": 0}'`:           "version 0 of a pod's fields",
	} {
		n := newNode(t)
		remove(t, n.dir+"/capture-cni-lookup")
		if err := lab.WriteProgram(n.dir+"/capture-cni-lookup", []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+script+"\n")); err != nil {
			t.Fatal(err)
		}
		asked := n.settings()
		asked.SingleAttempt = true
		_, err := asked.Pod(t.Context(), wanted)
		expectFault(t, err, want)
	}
}

// TestCheckWays expects an error that names both ways while neither is open.
func TestCheckWays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		answer      lookup.Answer
		credentials string // "", "valid" or "untrusted"
		want        string
	}{
		{"agent and credentials", lookup.Answer{Version: capture.PodVersion}, "valid", ""},
		{"agent alone", lookup.Answer{Version: capture.PodVersion}, "", ""},
		{"credentials alone", faulty(lookup.Failed, "has not read its node's pods yet"), "valid", ""},
		{"neither", faulty(lookup.Failed, "has not read its node's pods yet"), "", "has not read its node's pods yet\nasking the API server"},
		{"credentials that all can write", faulty(lookup.Failed, "not yet"), "untrusted", "can be written by other users"},
	} {
		n := newNode(t)
		switch test.credentials {
		case "":
			remove(t, n.dir+"/kubeconfig")
		case "untrusted":
			if err := os.Chmod(n.dir+"/kubeconfig", 0o666); err != nil {
				t.Fatal(err)
			}
		}
		asked := n.settings()
		asked.Agent.Socket = serve(t, answering(test.answer)).socket
		err := asked.CheckWays(t.Context())
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
		if n.Requests() != 0 {
			t.Errorf("%s: %d requests reached the API server", test.name, n.Requests())
		}
	}
}

// TestPeerUID compares the kernel's answer with this process's user.
func TestPeerUID(t *testing.T) {
	t.Parallel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	file := os.NewFile(uintptr(pair[0]), "socket")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if uid, err := lookup.PeerUID(conn.(*net.UnixConn)); err != nil || uid != os.Geteuid() {
		t.Errorf("got uid %d, %v", uid, err)
	}
	_ = conn.Close()
	if _, err := lookup.PeerUID(conn.(*net.UnixConn)); err == nil {
		t.Error("no error for a closed connection")
	}
}

// TestFenceOfEarlierRelease refuses the pod of an agent that leaves out a fence's values.
func TestFenceOfEarlierRelease(t *testing.T) {
	t.Parallel()
	for _, version := range []int{capture.PodVersion - 1, capture.PodVersion} {
		fenced := ofVersion(version)
		fenced.Pod.Annotations = map[string]string{"capture-cni.io/fence": ""}
		a := serve(t, onlyOf(fenced))
		_, err := lookup.Agent{Socket: a.socket}.Ask(t.Context(), lookup.Request{Pod: wanted})
		if (err == nil) != (version == capture.PodVersion) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
