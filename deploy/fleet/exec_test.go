// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Channels of the protocol that API servers speak over a WebSocket.
const (
	stdoutChannel = 1
	stderrChannel = 2
	errorChannel  = 3
)

// frame returns a binary WebSocket message (RFC 6455) of less than 126 bytes.
func frame(channel byte, text string) []byte {
	return append([]byte{0x82, byte(1 + len(text)), channel}, text...)
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
	_, err = conn.Write([]byte{0x88, 2, 0x03, 0xe8}) // the normal end
	_, _ = bufio.NewReader(buffer).ReadByte()        // until the client has read all of it
	return err
}

// TestExec executes a command in a container, and returns its error output as the error.
func TestExec(t *testing.T) {
	t.Parallel()
	const failed = `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"1"}]}}`
	for name, test := range map[string]struct {
		messages     [][]byte
		output, want string
	}{
		"success": {[][]byte{frame(stdoutChannel, "state captured\n"), frame(errorChannel, `{"status":"Success"}`)}, "state captured\n", ""},
		"failure": {
			[][]byte{frame(stdoutChannel, "pod\n"), frame(stderrChannel, "this node does not run the pod\n"), frame(errorChannel, failed)},
			"pod\n", "executing explain shop/web in pod capture-cni/agent, container guard: this node does not run the pod",
		},
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
		if _, failed := errors.AsType[commandFailed](err); failed != (name == "failure") {
			t.Errorf("%s: the command failed: %v", name, failed)
		}
		if path != "GET /api/v1/namespaces/capture-cni/pods/agent/exec" || query != "command=explain&command=shop%2Fweb&container=guard&stderr=true&stdout=true" {
			t.Errorf("%s: %s?%s", name, path, query)
		}
		server.Close()
	}
}

// TestExecForbidden says so, after an attempt with the protocol of older API servers.
func TestExecForbidden(t *testing.T) {
	t.Parallel()
	var methods []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		methods = append(methods, r.Method)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods \"agent\" is forbidden: cannot create resource \"pods/exec\""}`))
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
}
