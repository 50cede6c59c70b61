// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/capture-cni/capture-cni/e2e/inject"
)

// injector serves webhooks: /inject, for meshes with a CNI plugin, /inject-init, which
// adds istio-init, too, and /inject-silent, for applications that do not expect the answers of
// proxies.
func injector(ctx context.Context, address, image, certificate, key string) error {
	options := inject.Options{ProxyImage: image, InitImage: image, ProxyArgs: []string{"proxy", "sidecar"}}
	withInit := options
	withInit.Init = true
	silent := options
	silent.ProxyArgs = append(options.ProxyArgs, "silent")
	mux := http.NewServeMux()
	mux.Handle("/inject", inject.Handler(options))
	mux.Handle("/inject-init", inject.Handler(withInit))
	mux.Handle("/inject-silent", inject.Handler(silent))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return server.ServeTLS(listener, certificate, key)
}
