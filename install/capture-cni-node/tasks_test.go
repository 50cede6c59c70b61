// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRunTogether ends every task when one fails, and waits for their ends.
func TestRunTogether(t *testing.T) {
	t.Parallel()
	failure := errors.New("failed")
	ended := 0
	err := runTogether(t.Context(),
		untilEnd(func(ctx context.Context) { <-ctx.Done(); ended++ }),
		func(context.Context) error { return failure },
	)
	if !errors.Is(err, failure) || ended != 1 {
		t.Errorf("got %v, %d tasks ended", err, ended)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runTogether(ctx, untilEnd(func(ctx context.Context) { <-ctx.Done() })); err != nil {
		t.Errorf("at the end of the context: %v", err)
	}
}

// TestHTTPServer serves from its start until the context ends.
func TestHTTPServer(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	address, err := lab.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	serve, err := httpServer(t.Context(), address, handler)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- serve(ctx) }()
	answer, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "served" {
		t.Errorf("got %q, %v", body, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended: %v", err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("the address is served after the context has ended")
	}
	if _, err := httpServer(t.Context(), "127.0.0.1:http-or-so", handler); err == nil {
		t.Error("a bad address is no error")
	}
}
