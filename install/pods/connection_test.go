// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestFull opens as many connections as are served at once: the next one is closed
// without a byte, and served once the others have ended.
func TestFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startAPI(t))
	w.waitReady(t)
	for range maxConnections {
		w.slots <- struct{}{}
	}
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if received, err := io.ReadAll(conn); err != nil || len(received) > 0 {
		t.Errorf("received %q, %v", received, err)
	}
	if refused := w.count(t, "pods_connections_refused_total", reasonFull); refused != 1 {
		t.Errorf("%d connections refused, want 1", refused)
	}
	<-w.slots
	if _, err := w.ask(t, lookup.Request{}); err != nil {
		t.Error(err)
	}
	poll(t, "the slot", func() bool { return len(w.slots) == maxConnections-1 })
}

// TestConnections opens many at once: the kernel keeps none that is not served.
func TestConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startAPI(t))
	w.waitReady(t)
	var idle []net.Conn
	for range maxConnections / 2 {
		idle = append(idle, w.dial(t))
	}
	if _, err := w.ask(t, lookup.Request{}); err != nil {
		t.Error(err)
	}
	began := time.Now()
	for _, conn := range idle {
		if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
			t.Errorf("received %q, %v", rest, err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("connections without a request lasted %s", took)
	}
	if faults := w.count(t, "pod_requests_total", sourceFault); faults != len(idle) {
		t.Errorf("%d faults counted of %d connections", faults, len(idle))
	}
}

// TestHostileRequests sends what is no request. The connection is closed without an
// answer, in little time, and the next request is answered.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startAPI(t))
	w.waitReady(t)
	framed := func(document string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(document)))) + document
	}
	for name, text := range map[string]string{
		"nothing":        "",
		"half a length":  "\x00\x00",
		"half a request": framed(strings.Repeat(" ", 100))[:50],
		"oversized":      string(binary.BigEndian.AppendUint32(nil, lookup.MaxRequest+1)),
		"huge":           "\xff\xff\xff\xff",
		"no JSON":        framed("{"),
		"no namespace":   framed(`{"version":1,"pod":{"name":"web"}}`),
		"a path":         framed(`{"version":1,"pod":{"namespace":"shop","name":"../../secrets/x"}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := w.dial(t)
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			limit := 5 * time.Second
			if name == "oversized" || name == "huge" {
				limit = requestTimeout / 2 // none of it is waited for
			}
			if received, _ := io.ReadAll(conn); len(received) > 0 || time.Since(began) > limit {
				t.Errorf("received %q after %s", received, time.Since(began))
			}
			if _, err := w.ask(t, lookup.Request{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOtherVersion sends a request of the release before, whose fields differ: it gets
// the agent's version, and no pod that it would misread.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	api := startAPI(t)
	api.Put(podOn(ownNode, "web", "u1"))
	w := newWorld(t, api)
	w.waitReady(t)
	for _, version := range []int{capture.PodVersion - 1, capture.PodVersion + 1} {
		request := lookup.Request{Version: version, Pod: ref("web", "u1")}
		document, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		conn := w.dial(t)
		if err := lookup.WriteMessage(conn, document); err != nil {
			t.Fatal(err)
		}
		received, err := lookup.ReadMessage(conn, lookup.MaxAnswer)
		if err != nil {
			t.Fatal(err)
		}
		var answer lookup.Answer
		if err := json.Unmarshal(received, &answer); err != nil || !reflect.DeepEqual(answer, lookup.Answer{Version: capture.PodVersion}) {
			t.Errorf("version %d: got %s, %v", version, received, err)
		}
	}
}

// TestEndOfAgent ends the agent while a connection has sent no request.
func TestEndOfAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startAPI(t))
	w.waitReady(t)
	conn := w.dial(t)
	w.end()
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("received %q, %v", rest, err)
	}
	poll(t, "the end of the listener", func() bool {
		refused, err := net.Dial("unix", w.socket)
		if err == nil {
			_ = refused.Close()
		}
		return err != nil
	})
	if _, err := os.Lstat(w.socket); err != nil {
		t.Errorf("the next agent's socket would be away for a moment: %v", err)
	}
}

// asOtherUser is the environment variable that makes the test's program connect.
const asOtherUser = "CAPTURE_CNI_TEST_CONNECT"

// TestOtherUser connects as another user to a socket that everybody may use by its
// mode: no byte is sent.
func TestOtherUser(t *testing.T) {
	if path := os.Getenv(asOtherUser); path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if received, err := io.ReadAll(conn); err != nil || len(received) > 0 {
			t.Fatalf("received %q, %v", received, err)
		}
		return
	}
	lab.RequireRoot(t)
	t.Parallel()
	w := newWorld(t, startAPI(t))
	w.waitReady(t)
	if info, err := os.Stat(w.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	dir := filepath.Dir(w.socket)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", info.Mode(), err)
	}
	for path, mode := range map[string]os.FileMode{w.socket: 0o666, dir: 0o755, filepath.Dir(dir): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile("/proc/self/exe") // its own directory can be root's alone
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(filepath.Dir(dir), "client")
	if err := lab.WriteProgram(binary, program); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary, "-test.run", "^TestOtherUser$", "-test.v")
	command.Dir, command.Env = "/", []string{asOtherUser + "=" + w.socket}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestOtherUser") {
		t.Errorf("%v\n%s", err, out)
	}
	if refused := w.count(t, "pods_connections_refused_total", reasonPeer); refused != 1 {
		t.Errorf("%d connections refused, want 1", refused)
	}
}

// TestNoSocket says why requests can't be sent.
func TestNoSocket(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("x", 107)
	s := New(Settings{Socket: long}, nil, newRegistry(), discard())
	if err := s.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), long) {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = New(Settings{Socket: file + "/pods.sock"}, nil, newRegistry(), discard())
	if err := s.Ready(); err == nil {
		t.Error("ready before it listens")
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(t.Context()) }()
	poll(t, "the error", func() bool { return strings.Contains(s.Ready().Error(), "not a directory") })
}
