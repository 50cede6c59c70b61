// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// web answers HTTP requests with the pod's name and with the client's identity, which the
// sidecar knows by mTLS. At the other addresses it answers as serve does.
func web(ctx context.Context, address string, others []string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: timeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", name("app"), r.Header.Get("X-Forwarded-Client-Cert"))
	})}
	go func() { _ = server.Serve(listener) }() // until the process ends
	return serve(ctx, "tcp", others)
}

// poll requests a URL all the time, and prints a line for each answer.
func poll(ctx context.Context, url string) error {
	client := http.Client{Timeout: timeout}
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		response, err := client.Get(url)
		if err != nil {
			fmt.Println(err)
			continue
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		fmt.Println(response.StatusCode, string(body), err)
	}
	return nil
}
