// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// startServer serves a handler until the test ends, and returns its address.
func startServer(t *testing.T, handler http.HandlerFunc) (address string) {
	t.Helper()
	address, err := lab.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	serve, err := httpServer(address, handler, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ended: %v", err)
		}
		if _, err := net.Dial("tcp", address); err == nil {
			t.Error("the address is served after the context has ended")
		}
	})
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
	}
}

func get(address string) (string, error) {
	client := http.Client{Timeout: time.Minute}
	answer, err := client.Get("http://" + address)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func served(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }

// TestHTTPServer serves from its start until the context ends.
func TestHTTPServer(t *testing.T) {
	t.Parallel()
	if body, err := get(startServer(t, served)); err != nil || body != "served" {
		t.Errorf("got %q, %v", body, err)
	}
	for _, bad := range []string{"", "127.0.0.1", "127.0.0.1:http-or-so", ":70000"} {
		if _, err := httpServer(bad, http.NotFoundHandler(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "expected host:port") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestSlowClients ends connections on which nothing happens: before a request, in the
// middle of one, after an answer, and while nobody reads one.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	aborted := make(chan error, 1)
	address := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			_, err := io.Copy(w, endless{})
			aborted <- err
		case "/body":
			_, _ = io.ReadAll(r.Body)
		default:
			served(w, r)
		}
	})
	for name, sent := range map[string]string{
		"silent":            "",
		"half a header":     "GET / HTTP/1.1\r\nHost: x\r\n",
		"after an answer":   "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"half a body":       "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nx",
		"too long a header": "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, sent) // fails where the server ends it early
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it was not ended within a minute")
			}
		})
	}
	t.Run("an answer that nobody reads", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-aborted:
			if err == nil {
				t.Error("an endless answer was written")
			}
		case <-time.After(time.Minute):
			t.Error("it was not ended within a minute")
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestConnectionsAreBounded serves a new client while others hold more connections than
// there can be, and the oldest ones end for it.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	address := startServer(t, served)
	held := make([]net.Conn, maxConnections+100)
	for i := range held {
		var err error
		if held[i], err = net.Dial("tcp", address); err != nil {
			t.Fatal(err)
		}
		defer held[i].Close()
	}
	if body, err := get(address); err != nil || body != "served" {
		t.Errorf("got %q, %v", body, err)
	}
	for _, conn := range held[:100] {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("one of the oldest connections is still open: %v", err)
		}
	}
	last := held[len(held)-1]
	if _, err := io.WriteString(last, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(last); err != nil || !strings.HasSuffix(string(answer), "served") {
		t.Errorf("the newest of them: %q, %v", answer, err)
	}
}

// TestClosedConnectionsDoNotCount closes no other connection for those that have ended.
func TestClosedConnectionsDoNotCount(t *testing.T) {
	t.Parallel()
	b := bounded{max: 2}
	accept := func() (client, server net.Conn) {
		client, server = net.Pipe()
		b.observe(server, http.StateNew)
		b.observe(server, http.StateActive)
		return client, server
	}
	first, _ := accept()
	defer first.Close()
	for range 5 {
		client, server := accept()
		_ = client.Close()
		b.observe(server, http.StateClosed)
	}
	_ = first.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection that stayed: %v", err)
	}
	if n := len(b.open); n != 1 {
		t.Errorf("%d connections count, want 1", n)
	}
}

// TestListenAddress reads what the chart's $(HOST_IP):PORT and [$(HOST_IP)]:PORT become on
// nodes of both families, for the agent and the guard alike.
func TestListenAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"127.0.0.1:15015": "127.0.0.1:15015", "[::1]:15016": "[::1]:15016", "0.0.0.0:1": "0.0.0.0:1", "[::]:1": "[::]:1", ":15015": ":15015", "localhost:80": "localhost:80",
		"fd00::1:15015": "[fd00::1]:15015", "[fd00::1]:15015": "[fd00::1]:15015", "::1:15015": "[::1]:15015", ":::15015": "[::]:15015",
		"2001:db8:0:1:2:3:4:5:15016": "[2001:db8:0:1:2:3:4:5]:15016", "[192.0.2.1]:15015": "[192.0.2.1]:15015",
		"": "", "15015": "", "fd00::1": "", "2001:db8:0:1:2:3:4:5": "", "[fd00::1]": "", "fd00::1:http-": "", "127.0.0.1:70000": "", "a:b:1": "", "127.0.0.1": "",
	} {
		got, err := listenAddress(text)
		if got != want || (err != nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "expected host:port") {
			t.Errorf("%q is read as %q, want %q (%v)", text, got, want, err)
		}
		if _, err := httpServer(text, nil, slog.New(slog.DiscardHandler)); (err != nil) != (want == "") {
			t.Errorf("a server at %q: %v", text, err)
		}
	}
	// A report reads the metrics where the server serves them.
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	mapped := "::ffff:" + server.Listener.Addr().String()
	if err := metricsAt(mapped)(t.Context(), io.Discard); err != nil {
		t.Errorf("metrics at %s: %v", mapped, err)
	}
}

// TestTakenPort waits for the port, tells that once, tells when it has it, and ends with
// its context.
func TestTakenPort(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := other.Addr().String()
	var log bytes.Buffer
	serve, err := httpServer(address, http.HandlerFunc(served), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	early, cancelEarly := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancelEarly()
	if err := serve(early); err != nil {
		t.Errorf("ended while it waited: %v", err)
	}
	log.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx) }()
	time.Sleep(listenInterval + listenInterval/2) // two attempts fail
	_ = other.Close()
	for {
		if body, err := get(address); err == nil {
			if body != "served" {
				t.Errorf("got %q", body)
			}
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended: %v", err)
	}
	lines := strings.SplitAfter(log.String(), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "address already in use") || !strings.Contains(lines[0], "--listen") || !strings.Contains(lines[1], "are served") {
		t.Errorf("logged:\n%s", lines)
	}
}
