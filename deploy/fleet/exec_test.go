// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Channels of the protocol that API servers use over WebSocket.
const (
	stdoutChannel = 1
	stderrChannel = 2
	errorChannel  = 3
)

// frame returns a binary WebSocket message (RFC 6455).
func frame(channel byte, text string) []byte {
	header := binary.BigEndian.AppendUint64([]byte{0x82, 127}, uint64(1+len(text)))
	return append(append(header, channel), text...)
}

// serveExec accepts a WebSocket and sends messages.
func serveExec(w http.ResponseWriter, r *http.Request, messages ...[]byte) error {
	hash := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
		base64.StdEncoding.EncodeToString(hash[:]))
	for _, message := range messages {
		if _, err := conn.Write(message); err != nil {
			return err
		}
	}
	_, err = conn.Write([]byte{0x88, 2, 0x03, 0xe8}) // a close message with status 1000, the normal end
	_, _ = bufio.NewReader(buffer).ReadByte()        // wait until the client has read all messages
	return err
}

// TestExec executes a command in a container, and expects the command's stderr as the error.
func TestExec(t *testing.T) {
	t.Parallel()
	const failed = `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"1"}]}}`
	const broken, explained = `{"status":"Failure","message":"it broke"}`, "executing explain shop/web in pod capture-cni/agent, container guard: "
	for name, test := range map[string]struct {
		messages     [][]byte
		output, want string
	}{
		"success": {[][]byte{frame(stdoutChannel, "state captured\n"), frame(errorChannel, `{"status":"Success"}`)}, "state captured\n", ""},
		"failure": {
			[][]byte{frame(stdoutChannel, "pod\n"), frame(stderrChannel, "this node does not run the pod\n"), frame(errorChannel, failed)},
			"pod\n", explained + "this node does not run the pod",
		},
		"failure of many words": {
			[][]byte{frame(stderrChannel, strings.Repeat("x", maxStderr+1)), frame(errorChannel, failed)}, "", explained + strings.Repeat("x", maxStderr),
		},
		"a warning":            {[][]byte{frame(stderrChannel, "careful\n"), frame(errorChannel, `{"status":"Success"}`)}, "", ""},
		"an end without words": {[][]byte{frame(errorChannel, broken)}, "", explained + "it broke"},
		"an end":               {[][]byte{frame(stderrChannel, "the container is gone\n"), frame(errorChannel, broken)}, "", explained + "the container is gone"},
	} {
		var path, query string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			path, query = r.Method+" "+r.URL.Path, r.URL.RawQuery
			if err := serveExec(w, r, test.messages...); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}))
		access := &rest.Config{Host: server.URL}
		client, err := NewClient(access)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		agent := Agent{namespace: "capture-cni", name: "agent"}
		err = client.Exec(t.Context(), agent, "guard", []string{"explain", "shop/web"}, &out)
		if out.String() != test.output || fmt.Sprint(err) != test.want && (err != nil || test.want != "") {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
		if _, failed := errors.AsType[commandFailed](err); failed != strings.HasPrefix(name, "failure") {
			t.Errorf("%s: the command failed: %v", name, failed)
		}
		if path != "GET /api/v1/namespaces/capture-cni/pods/agent/exec" || query != "command=explain&command=shop%2Fweb&container=guard&stderr=true&stdout=true" {
			t.Errorf("%s: %s?%s", name, path, query)
		}
		server.Close()
	}
}

// TestExecForbidden expects the API server's error, after Exec has also tried the protocol of older API
// servers.
func TestExecForbidden(t *testing.T) {
	t.Parallel()
	var methods []string
	code, reason := http.StatusForbidden, "Forbidden"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		methods = append(methods, r.Method)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"pods \"agent\" is forbidden: cannot create resource \"pods/exec\""}`
		_, _ = fmt.Fprintf(w, status, reason, code)
	}))
	t.Cleanup(server.Close)
	access := &rest.Config{Host: server.URL}
	client, err := NewClient(access)
	if err != nil {
		t.Fatal(err)
	}
	agent := Agent{namespace: "capture-cni", name: "agent"}
	err = client.Exec(t.Context(), agent, "guard", []string{"explain"}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "forbidden: cannot create resource \"pods/exec\". The chart's Role capture-cni-operator-exec has") || !slices.Equal(methods, []string{"GET", "POST"}) {
		t.Errorf("%q: %v", methods, err)
	}
	code, reason = http.StatusNotFound, "NotFound"
	err = client.Exec(t.Context(), agent, "guard", []string{"explain"}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), ": unable to upgrade connection: pods ") {
		t.Errorf("an answer of another kind: %v", err)
	}
}
