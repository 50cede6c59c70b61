// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// serveWeb serves HTTP/1 and HTTP/2 at the port 8080, and HTTPS at 8443, at all of a host's
// addresses. An answer has the request's protocol and what the client sent as its host.
func serveWeb(t *testing.T, host *lab.Host) (https *httptest.Server) {
	t.Helper()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s to %s", r.Proto, r.Host) })
	for port, start := range map[int]func(*httptest.Server){8080: (*httptest.Server).Start, 8443: (*httptest.Server).StartTLS} {
		server := httptest.NewUnstartedServer(answer)
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetHTTP1(true)
		server.Config.Protocols.SetHTTP2(true)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.EnableHTTP2 = true
		lab.Check(t, server.Listener.Close())
		host.Within(t, func() (err error) {
			server.Listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		})
		start(server)
		t.Cleanup(server.Close)
		https = map[int]*httptest.Server{8080: https, 8443: server}[port]
	}
	return https
}

// webClient returns a client of HTTP in a host, with one version of HTTP. It trusts a server,
// or speaks in clear if that is nil.
func webClient(host *lab.Host, version int, trusted *httptest.Server) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), DisableKeepAlives: version == 1}
	transport.DialContext = func(_ context.Context, _, to string) (net.Conn, error) { return host.Dial(app, "", to) }
	transport.Protocols.SetHTTP1(version == 1)
	transport.Protocols.SetHTTP2(version == 2)
	transport.Protocols.SetUnencryptedHTTP2(version == 2)
	if trusted != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: trusted.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"}
	}
	return &http.Client{Transport: transport, Timeout: 5 * time.Second}
}

// TestOracleEnvoyHTTP speaks HTTP/1 and HTTP/2 with a server, which Envoy reads, and TLS, which
// it passes on.
func TestOracleEnvoyHTTP(t *testing.T) {
	t.Parallel()
	forEachEnvoy(t, func(t *testing.T, w world, envoy *lab.Envoy, _ string) {
		for _, side := range []struct {
			name           string
			server, client *lab.Host
			address        dst
			outbound       int
		}{
			{"outbound", w.peer, w.pod, external, 1},
			{"inbound", w.pod, w.peer, podIP, 0},
		} {
			trusted := serveWeb(t, side.server)
			for _, f := range bothFamilies {
				for _, tt := range []struct {
					scheme, port string
					version      int
					want, by     string // the answer, and who says in a header that he served it
				}{
					{"http", "8080", 1, "HTTP/1.1", "sidecar"},
					{"http", "8080", 2, "HTTP/2.0", "sidecar"},
					{"https", "8443", 1, "HTTP/1.1", ""},
					{"https", "8443", 2, "HTTP/2.0", ""},
				} {
					accepts(t, envoy, side.outbound, 1-side.outbound, func() error {
						to := net.JoinHostPort(side.address[f], tt.port)
						var tlsServer *httptest.Server
						if tt.scheme == "https" {
							tlsServer = trusted
						}
						client := webClient(side.client, tt.version, tlsServer)
						defer client.CloseIdleConnections()
						response, err := client.Get(tt.scheme + "://" + to)
						if err != nil {
							return err
						}
						defer response.Body.Close()
						body, err := io.ReadAll(response.Body)
						if got := response.Header.Get("Server"); string(body) != tt.want+" to "+to || got != tt.by {
							t.Errorf("%s: %s: %q by %q, want %s by %q (%v)", side.name, tt.scheme, body, got, tt.want, tt.by, err)
						}
						return err
					})
				}
			}
		}
	})
}
