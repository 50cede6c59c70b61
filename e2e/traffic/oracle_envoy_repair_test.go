// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
)

// TestOracleEnvoyCookies has every listener answer each SYN by a cookie. The application's
// listener accepts cookies, too, because connections within the pod reach it directly.
func TestOracleEnvoyCookies(t *testing.T) {
	t.Parallel()
	forEachEnvoy(t, func(t *testing.T, w world, envoy *lab.Envoy, _ string) {
		w.echo(t)
		configure(t, w.pod, "ipv4/tcp_syncookies", "2") // of IPv6, too
		for range 2 {
			accepts(t, envoy, 0, 0, func() error {
				var errs []error
				for _, to := range []string{"127.0.0.1:9080", "[::1]:9080"} {
					conn, err := w.pod.Dial(app, "", to)
					lab.Check(t, err)
					errs = append(errs, echoes(conn, "within the pod"), conn.Close())
				}
				return errors.Join(errs...)
			})
			accepts(t, envoy, 2, 2, func() error { w.ways(t); return nil })
		}
	})
}

// TestOracleEnvoyRepaired deletes the rules below Envoy's open connections, and restores them
// as the guard does. Connections that were idle meanwhile go on, and those that a redirect
// led to Envoy end with the next packet. A connection that began without rules goes past
// Envoy as long as it lives, and the next one through Envoy.
func TestOracleEnvoyRepaired(t *testing.T) {
	t.Parallel()
	forEachEnvoy(t, func(t *testing.T, w world, envoy *lab.Envoy, mode string) {
		w.echo(t)
		idle, busy := w.ways(t), w.ways(t)
		netns := open(t, w.pod, config.NFTables) // the repair's backend is that of the rules before
		lab.Check(t, netns.Remove())
		for name, conn := range busy {
			redirected := mode == "REDIRECT" || strings.HasPrefix(name, "outbound") // the others get no answer
			if redirected && !errors.Is(echoes(conn, "in between"), syscall.ECONNRESET) {
				t.Errorf("%s, busy without rules: it lives on", name)
			}
		}
		during := w.ways(t)
		// Conntrack's start passes over the entries of all namespaces, which takes long while other tests run.
		w.pod.Load(t, "table inet other {\n chain unreachable {\n ct state invalid drop\n }\n}")
		rules := decide(t, injected(map[string]string{"sidecar.istio.io/interceptionMode": mode}, nil), dualStack())
		for range 2 {
			lost, err := kernel.Replace(t.Context(), netns.Namespace, rules)
			lab.Check(t, errors.Join(lost, err))
			for name, conn := range during {
				if err := errors.Join(echoes(conn, "past Envoy"), echoes(conn, "again")); err != nil {
					t.Errorf("%s, begun without rules: %v", name, err)
				}
			}
			accepts(t, envoy, 2, 2, func() error { w.ways(t); return nil })
		}
		for name, conn := range idle {
			if err := echoes(conn, "after idling"); err != nil {
				t.Errorf("%s, idle meanwhile: %v", name, err)
			}
		}
	})
}
